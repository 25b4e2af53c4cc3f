#include "runtime/jit/nvcc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cache/env.h"
#include "cache/version_order.h"
#include "runtime/jit/child_process.h"
#include "runtime/jit/driver.h"
#include "runtime/jit/kernel_symbol.h"
#include "runtime/jit/native_code.h"
#include "runtime/jit/temporary_folder.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSystemPath = "/usr/local/bin:/usr/bin:/bin";
constexpr const char* kSystemFolders[] = {"/usr/include", "/usr/lib", "/usr/lib64"};
constexpr const char* kHostCompiler = "g++";

// The numbers behind `mark`, "13.0.88" of "..., V13.0.88"; empty: there is no mark.
std::string numbers_behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == text.npos) return {};
  text.remove_prefix(at + mark.size());
  return std::string(text.substr(0, text.find_first_not_of("0123456789.")));
}

// The first file of this name in the folders of a search path.
std::optional<std::string> found_in(std::string_view search_path, std::string_view name) {
  while (!search_path.empty()) {
    const std::string_view folder = search_path.substr(0, search_path.find(':'));
    search_path.remove_prefix(std::min(search_path.size(), folder.size() + 1));
    std::string path = fmt::format("{}/{}", folder, name);
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

// As #include lines name them.
Status write_headers(const std::string& folder,
                     const std::vector<std::pair<std::string, std::string>>& headers) {
  for (const auto& [name, text] : headers) {
    CUBINERY_RETURN_IF_ERROR(write_temporary(fmt::format("{}/{}", folder, name), text));
  }
  return {};
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  const fs::path relative = file.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != ".." && !relative.is_absolute();
}

std::string search_path_of(const std::string& nvcc) {
  return fmt::format("{}:{}", fs::path(nvcc).parent_path().string(), kSystemPath);
}

Result<std::string> asked(const std::string& program, const std::vector<std::string>& environment) {
  Result<ChildOutcome> outcome = run_child({program, "--version"}, environment, "/");
  if (!outcome) return std::move(outcome).error();
  return std::move(outcome->output);
}

}  // namespace

std::vector<std::string> nvcc_places(const std::string& root) {
  const fs::path local = fs::path(root) / "usr/local";
  std::vector<std::string> toolkits;
  std::error_code error;
  for (fs::directory_iterator entry(local, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("cuda-")) toolkits.push_back(name);
  }
  std::sort(toolkits.begin(), toolkits.end(),
            [](const std::string& a, const std::string& b) { return version_less(b, a); });
  std::vector<fs::path> folders = {local / "cuda/bin"};
  for (const std::string& toolkit : toolkits) folders.push_back(local / toolkit / "bin");
  folders.insert(folders.end(), {fs::path(root) / "opt/cuda/bin", fs::path(root) / "usr/bin"});
  std::vector<std::string> places;
  places.reserve(folders.size());
  for (const fs::path& folder : folders) places.push_back((folder / "nvcc").string());
  return places;
}

Result<std::shared_ptr<const Nvcc>> Nvcc::open(const std::string& path, const Trust& trust,
                                               int driver) {
  std::shared_ptr<Nvcc> nvcc(new Nvcc);
  Result<std::string> found =
      find_program("nvcc", path.empty() ? nvcc_places("/") : std::vector{path}, trust);
  if (!found) return std::move(found).error();
  nvcc->path_ = *std::move(found);
  CUBINERY_RETURN_IF_ERROR(nvcc->find_versions(trust));
  CUBINERY_RETURN_IF_ERROR(check_generation("nvcc", nvcc->path_, nvcc->version_, driver));
  return std::shared_ptr<const Nvcc>(std::move(nvcc));
}

Status Nvcc::find_versions(const Trust& trust) {
  std::error_code error;
  const fs::path real = fs::canonical(path_, error);
  toolkit_ = (error ? fs::path(path_) : real).parent_path().parent_path().string();
  Result<std::string> own = asked(path_, environment("/tmp"));
  if (!own) return std::move(own).error();
  const std::string own_version = numbers_behind(*own, ", V");
  if (own_version.empty()) {
    return Status(Code::kUnsupported,
                  fmt::format("nvcc: {} --version names no version: {}", path_, *own));
  }
  const std::optional<std::string> host = found_in(search_path_of(path_), kHostCompiler);
  if (!host) {
    return Status(Code::kUnsupported,
                  fmt::format("nvcc: {} needs a host compiler, and there is no {} in {}", path_,
                              kHostCompiler, search_path_of(path_)));
  }
  CUBINERY_RETURN_IF_ERROR(check_library(*host, trust));
  Result<std::string> theirs = asked(*host, environment("/tmp"));
  if (!theirs) return std::move(theirs).error();
  // "g++ (Debian 12.2.0-14+deb12u1) 12.2.0": the words in brackets are the distribution's.
  const std::string_view line = std::string_view(*theirs).substr(0, theirs->find('\n'));
  const std::string host_version = numbers_behind(line, ") ");
  if (host_version.empty()) {
    return Status(Code::kUnsupported,
                  fmt::format("nvcc: {} --version names no version: {}", *host, line));
  }
  version_ = fmt::format("{}.{}", own_version, host_version);
  return {};
}

// PATH is where nvcc looks for its parts and for the host compiler.
std::vector<std::string> Nvcc::environment(const std::string& temporary) const {
  return {"PATH=" + search_path_of(path_), "TMPDIR=" + temporary, "LC_ALL=C"};
}

Status Nvcc::check_reached(const std::string& dependencies, const std::string& own) const {
  std::vector<fs::path> allowed = {toolkit_, own};
  allowed.insert(allowed.end(), std::begin(kSystemFolders), std::end(kSystemFolders));
  for (fs::path& folder : allowed) {
    std::error_code error;
    if (fs::path real = fs::canonical(folder, error); !error) folder = real;
  }
  for (const std::string& file : dependencies_in(dependencies)) {
    std::error_code error;
    fs::path real = fs::canonical(file, error);
    if (error) real = file;
    const bool is_known = std::any_of(allowed.begin(), allowed.end(), [&](const fs::path& folder) {
      return lies_in(real, folder);
    });
    if (is_known) continue;
    return Status(Code::kCompileFailed,
                  fmt::format("{} was read, whose changes would go unseen; accepted: files of the "
                              "include folders, of the toolkit {} and of the system [{}]",
                              real.string(), toolkit_, fmt::join(kSystemFolders, ", ")));
  }
  return {};
}

Result<CompileOutput> Nvcc::compile(const CompileInput& input) const {
  const Result<TemporaryFolder> folder = TemporaryFolder::make("nvcc");
  if (!folder) return folder.error().clone();
  const std::string headers = folder->file("include");
  CUBINERY_RETURN_IF_ERROR(write_headers(headers, input.headers));
  // In a folder of its own: no #include of it finds what nvcc writes.
  const std::string source = folder->file("source/" + fs::path(input.path).filename().string());
  CUBINERY_RETURN_IF_ERROR(write_temporary(source, input.source));
  const std::string cubin = folder->file("out.cubin");
  const std::string rule = folder->file("out.d");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {path_, "-I", headers});
    arguments.insert(arguments.end(), input.options.begin(), input.options.end());
    arguments.push_back(source);
    return run_child(arguments, environment(folder->path()), folder->path());
  };
  Result<ChildOutcome> done = run({"-cubin", "-o", cubin, "-MD", "-MF", rule});
  if (!done) return std::move(done).error();
  CompileOutput output{.cubin = {}, .log = std::move(done->output), .symbol = {}};
  const auto failed = [&](Code code, const std::string& why) {
    return Status(code, fmt::format("{}: {}", input.path, why), std::move(output.log));
  };
  FileInfo info;
  const bool is_there = !posix_env()->read(cubin, &output.cubin, &info) && !output.cubin.empty();
  // Without an exit code, where the host reaps its children, the cubin tells.
  if (done->exit_code.value_or(is_there ? 0 : 1) != 0 || !is_there) {
    return failed(Code::kCompileFailed,
                  fmt::format("compile failed (nvcc {}, {})", version_, path_));
  }
  std::string dependencies;
  if (posix_env()->read(rule, &dependencies, &info)) {
    return failed(Code::kIo, "nvcc did not say what it read");
  }
  const Status known = check_reached(dependencies, folder->path());
  if (!known.ok()) return failed(known.code(), std::string(known.message()));
  if (input.wants_ptx) {
    const std::string ptx = folder->file("out.ptx");
    if (Result<ChildOutcome> again = run({"-ptx", "-o", ptx}); !again) {
      return std::move(again).error();
    }
    if (posix_env()->read(ptx, &output.ptx, &info)) return failed(Code::kIo, "nvcc made no PTX");
  }
  if (input.name.empty()) return output;
  Result<std::string> symbol = symbol_of(output.cubin, input.name);
  if (!symbol) return failed(symbol.error().code(), std::string(symbol.error().message()));
  output.symbol = *std::move(symbol);
  return output;
}

std::string_view toolkit_version_in_nvcc(std::string_view version) {
  std::size_t end = 0;
  for (int numbers = 0; numbers < 3 && end != version.npos; ++numbers) {
    end = version.find('.', numbers == 0 ? 0 : end + 1);
  }
  return version.substr(0, end);
}

std::vector<std::string> dependencies_in(std::string_view rule) {
  std::vector<std::string> files;
  const std::size_t colon = rule.find(": ");
  if (colon == rule.npos) return files;
  rule.remove_prefix(colon + 2);
  std::string file;
  const auto end_file = [&] {
    if (!file.empty()) files.push_back(std::move(file));
    file.clear();
  };
  for (std::size_t i = 0; i < rule.size() && rule[i] != '\0'; ++i) {
    const char next = i + 1 < rule.size() ? rule[i + 1] : '\n';
    if (rule[i] == '\\' && next != '\n') {
      file += next;  // a blank or a backslash of the name's own
      ++i;
    } else if (rule[i] == '$' && next == '$') {
      file += '$';
      ++i;
    } else if (rule[i] == ' ' || rule[i] == '\n' || rule[i] == '\\') {
      end_file();
    } else {
      file += rule[i];
    }
  }
  end_file();
  return files;
}

}  // namespace cubinery
