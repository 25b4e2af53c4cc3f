#include "cli/source_file_options.h"

#include <fmt/format.h>

#include <utility>

#include "cli/manifest.h"
#include "codegen/source_name.h"

namespace cubinery {
namespace {

constexpr const char* kSourceGroup = "A kernel of your own, from a file";

}  // namespace

void SourceFileOptions::add_to(CLI::App& app) {
  app.add_option("--source-file", file_, "CUDA C++ with a __global__ function, compiled as it is")
      ->type_name("FILE")
      ->group(kSourceGroup);
  app.add_option("--function", function_,
                 "Its function, scale or \"ns::scale<float, 4>\" [the only one]")
      ->type_name("NAME")
      ->group(kSourceGroup);
  app.add_option("-I,--include-dir", includes_, "Where its #include looks, in order (repeatable)")
      ->type_name("DIR")
      ->allow_extra_args(false)
      ->group(kSourceGroup);
  app.add_option("--compile-option", options_,
                 "More for the compiler, as --compile-option=-DBLOCK=256 (repeatable)")
      ->type_name("OPTION")
      ->allow_extra_args(false)
      ->group(kSourceGroup);
  app.add_option("--compiler", compiler_, "nvrtc, or nvcc for what NVRTC cannot [nvrtc]")
      ->type_name("NAME")
      ->group(kSourceGroup);
}

Result<std::optional<Request>> SourceFileOptions::request() const {
  if (file_.empty()) {
    const bool is_unused =
        function_.empty() && includes_.empty() && options_.empty() && compiler_.empty();
    if (is_unused) return std::optional<Request>();
    return Status(Code::kInvalidArgument,
                  "--function, --include-dir, --compile-option and --compiler are of "
                  "--source-file, which is missing");
  }
  SourceFile asked{.source = {.name = function_, .includes = includes_, .options = options_},
                   .file = file_};
  if (!compiler_.empty()) {
    const std::optional<Compiler> compiler = compiler_called(compiler_);
    if (!compiler) {
      return Status(Code::kInvalidArgument,
                    fmt::format("--compiler {}; accepted: nvrtc, nvcc", compiler_));
    }
    asked.source.compiler = *compiler;
  }
  Result<AskedKernel> kernel = read_source_file(std::move(asked), "");
  if (!kernel) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--source-file {}: {}", file_, kernel.error().message()));
  }
  Request request;
  request.origin = file_;
  request.own_kernel = *std::move(kernel);
  return std::optional<Request>(std::move(request));
}

}  // namespace cubinery
