#include "runtime/jit/disassembly.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "runtime/jit/child_process.h"
#include "runtime/jit/native_code.h"
#include "runtime/jit/nvcc.h"
#include "runtime/jit/temporary_folder.h"

namespace cubinery {

Result<std::string> disassembly(std::string_view cubin, const std::string& nvcc_path,
                                const Trust& trust) {
  namespace fs = std::filesystem;
  std::vector<std::string> places;
  for (const std::string& nvcc : nvcc_path.empty() ? nvcc_places("/") : std::vector{nvcc_path}) {
    places.push_back((fs::path(nvcc).parent_path() / "nvdisasm").string());
  }
  const Result<std::string> program = find_program("nvdisasm", places, trust);
  if (!program) return program.error().clone();
  const Result<TemporaryFolder> folder = TemporaryFolder::make("sass");
  if (!folder) return folder.error().clone();
  const std::string file = folder->file("kernel.cubin");
  CUBINERY_RETURN_IF_ERROR(write_temporary(file, cubin));
  Result<ChildOutcome> done =
      run_child({*program, "--print-code", file}, {"LC_ALL=C"}, folder->path());
  if (!done) return std::move(done).error();
  if (done->exit_code.value_or(0) == 0 && !done->output.empty()) return std::move(done->output);
  return Status(Code::kCompileFailed, fmt::format("{} refuses the cubin", *program),
                std::move(done->output));
}

}  // namespace cubinery
