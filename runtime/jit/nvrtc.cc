#include "runtime/jit/nvrtc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cache/cubin_note.h"
#include "cache/version_order.h"
#include "codegen/arch.h"
#include "runtime/jit/driver.h"
#include "runtime/jit/native_code.h"
#include "runtime/jit/nvrtc_places.h"
#include "runtime/jit/on_threads.h"
#include "runtime/jit/temporary_folder.h"

namespace cubinery {
namespace {

constexpr int kMinMajor = 12;
constexpr int kMinMinor = 8;
// What is looked for first: results inside the library were measured with it.
constexpr int kFirstMajor = 13;

// What older versions do not know.
struct NewOption {
  std::string_view name;
  std::string_view since;
};
constexpr NewOption kNewOptions[] = {{"--no-cache", "12.9"}};
constexpr std::string_view kArchOption = "--gpu-architecture=";
constexpr std::string_view kSubject = "NVRTC: ";

// The folder of the library that this is in, and that of the program.
std::vector<std::filesystem::path> own_folders() {
  std::error_code ignored;
  std::vector<std::filesystem::path> folders = {
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path()};
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&nvrtc_places), &info) != 0 && info.dli_fname != nullptr) {
    folders.push_back(std::filesystem::path(info.dli_fname).parent_path());
  }
  std::erase_if(folders, [](const auto& folder) { return !folder.is_absolute(); });
  return folders;
}

// The loader's search path, then the usual places.
std::vector<std::string> candidates() {
  std::vector<std::string> paths = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  for (std::string& path : nvrtc_places("/", own_folders())) paths.push_back(std::move(path));
  return paths;
}

// Whether a library may be of this generation, by the number at the end of its name; of
// kFirstMajor: or newer.
bool may_be_of(std::string_view library, int generation) {
  const std::string_view number = library.substr(library.rfind('.') + 1);
  int major = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), major);
  if (error != std::errc() || stop != number.data() + number.size()) return true;
  return generation == kFirstMajor ? major >= kFirstMajor : major == generation;
}

// "NVRTC 12.8.93 does not know sm_103a; NVRTC 12.9 and newer do", where that is why it refuses
// options.
std::optional<std::string> unknown_arch(const std::vector<std::string>& options,
                                        std::string_view version) {
  for (const std::string_view option : options) {
    if (!option.starts_with(kArchOption)) continue;
    const std::optional<Arch> arch = parse_arch(option.substr(kArchOption.size()));
    if (!arch || !version_less(version, nvrtc_since(*arch))) continue;
    return fmt::format("NVRTC {} does not know {}; NVRTC {} and newer do", version, arch->name(),
                       nvrtc_since(*arch));
  }
  return std::nullopt;
}

// "// Cuda compilation tools, release 12.8, V12.8.93" among the first lines.
std::string version_of_ptx(std::string_view ptx) {
  const std::size_t at = ptx.find("// Cuda compilation tools, release ");
  return at == ptx.npos ? "" : toolkit_version_in(ptx.substr(at, ptx.find('\n', at) - at));
}

// A program that is destroyed on every path.
class Program {
 public:
  Program(nvrtcProgram program, decltype(&::nvrtcDestroyProgram) destroy)
      : program_(program), destroy_(destroy) {}
  ~Program() { destroy_(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  nvrtcProgram get() const { return program_; }

 private:
  nvrtcProgram program_;
  decltype(&::nvrtcDestroyProgram) destroy_;
};

}  // namespace

std::vector<std::string> options_given(std::vector<std::string> options, std::string_view version) {
  if (version.empty()) return options;
  std::erase_if(options, [&](const std::string& option) {
    return std::any_of(std::begin(kNewOptions), std::end(kNewOptions), [&](const NewOption& known) {
      return option == known.name && version_less(version, known.since);
    });
  });
  return options;
}

Result<std::shared_ptr<const Nvrtc>> Nvrtc::open(const std::string& path, const Trust& trust,
                                                 int driver) {
  if (path.empty()) return open_newest(candidates(), trust, driver);
  std::shared_ptr<Nvrtc> nvrtc(new Nvrtc);
  std::string why_not;
  if (!nvrtc->open_library(path, trust, &why_not)) return nvrtc->not_found({path}, why_not);
  CUBINERY_RETURN_IF_ERROR(nvrtc->load(driver));
  CUBINERY_RETURN_IF_ERROR(nvrtc->complete(trust));
  return std::shared_ptr<const Nvrtc>(std::move(nvrtc));
}

Result<std::shared_ptr<const Nvrtc>> Nvrtc::open_newest(const std::vector<std::string>& candidates,
                                                        const Trust& trust, int driver) {
  std::shared_ptr<Nvrtc> nvrtc(new Nvrtc);
  CUBINERY_RETURN_IF_ERROR(nvrtc->load_newest(candidates, trust, driver));
  CUBINERY_RETURN_IF_ERROR(nvrtc->complete(trust));
  return std::shared_ptr<const Nvrtc>(std::move(nvrtc));
}

Status Nvrtc::load_newest(const std::vector<std::string>& candidates, const Trust& trust,
                          int driver) {
  std::string why_not;
  std::vector<std::string> unfit;  // each once: the loader's have several names
  for (const int generation : {kFirstMajor, kMinMajor}) {
    for (const std::string& candidate : candidates) {
      if (!may_be_of(candidate, generation) || !open_library(candidate, trust, &why_not)) continue;
      const Status fits = load(driver);
      if (fits.ok() && major_ >= generation) return {};
      std::string why(fits.message().substr(fits.ok() ? 0 : kSubject.size()));
      if (fits.ok() || std::find(unfit.begin(), unfit.end(), why) != unfit.end()) continue;
      unfit.push_back(std::move(why));
    }
  }
  if (!unfit.empty()) why_not = fmt::format("{}", fmt::join(unfit, "; "));
  return not_found(candidates, why_not);
}

Status Nvrtc::load(int driver) {
  CUBINERY_RETURN_IF_ERROR(load_functions());
  return check_version(driver);
}

Status Nvrtc::complete(const Trust& trust) {
  load_optional();
  open_builtins(trust);
  return find_build();
}

bool Nvrtc::open_library(const std::string& candidate, const Trust& trust, std::string* why_not) {
  is_by_path_ = candidate.find('/') != candidate.npos;
  const Status trusted = is_by_path_ ? check_library(candidate, trust) : Status();
  if (trusted.ok() && library_.open(candidate)) {
    path_ = candidate;
    return true;
  }
  if (!trusted.ok()) {
    passed_over_.push_back(fmt::format("{}: {}", candidate, trusted.message()));
  } else if (why_not->empty()) {
    *why_not = library_.error();
  }
  return false;
}

Status Nvrtc::not_found(const std::vector<std::string>& candidates, std::string why_not) const {
  for (const std::string& passed_over : passed_over_) {
    why_not += fmt::format("{}{}", why_not.empty() ? "" : "; ", passed_over);
  }
  return Status(Code::kUnsupported,
                fmt::format("{}cannot open any of: {} ({}); install the CUDA toolkit or the "
                            "PyPI package nvidia-cuda-nvrtc (of CUDA 12: nvidia-cuda-nvrtc-cu12), "
                            "or name libnvrtc.so in "
                            "Options::nvrtc_path (CUBINERY_NVRTC)",
                            kSubject, fmt::join(candidates, ", "), why_not));
}

Status Nvrtc::load_functions() {
#define CUBINERY_LOAD(function)                                                                   \
  function##_ = reinterpret_cast<decltype(&::function)>(library_.symbol(#function));              \
  if (function##_ == nullptr) {                                                                   \
    return Status(Code::kUnsupported,                                                             \
                  fmt::format("NVRTC: {} lacks {}; needs NVRTC {}.{} or newer", path_, #function, \
                              kMinMajor, kMinMinor));                                             \
  }
  CUBINERY_NVRTC_FUNCTIONS(CUBINERY_LOAD)
#undef CUBINERY_LOAD
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(nvrtcVersion_), &info) != 0 && info.dli_fname != nullptr) {
    path_ = info.dli_fname;  // the loader's search path gave the name only
  }
  return {};
}

Status Nvrtc::check_version(int driver) {
  int minor = 0;
  if (nvrtcVersion_(&major_, &minor) != NVRTC_SUCCESS || major_ < kMinMajor ||
      (major_ == kMinMajor && minor < kMinMinor)) {
    return Status(Code::kUnsupported,
                  fmt::format("{}{} is version {}.{}; needs {}.{} or newer", kSubject, path_,
                              major_, minor, kMinMajor, kMinMinor));
  }
  version_ = fmt::format("{}.{}", major_, minor);
  return check_generation("NVRTC", path_, version_, driver);
}

// NVRTC opens this library by its name when it compiles.  The loader finds it by that name where
// it knows the toolkit's folder, or where it has it open already: then whoever opened it knew the
// path, as we do.  Where it is elsewhere, NVRTC says so.
void Nvrtc::open_builtins(const Trust& trust) {
  const std::string name = "libnvrtc-builtins.so." + version_;
  std::error_code ignored;
  const std::filesystem::path real = std::filesystem::canonical(path_, ignored);
  const std::string beside = (std::filesystem::path(path_).parent_path() / name).string();
  const std::string beside_real = (real.parent_path() / name).string();
  const auto open = [&](const std::string& library) {
    const bool trusted = !is_by_path_ || check_library(library, trust).ok();
    return trusted && builtins_.open(library);
  };
  (void)(open(beside) || open(beside_real) || builtins_.open(name));
}

Status Nvrtc::find_build() {
  constexpr const char* kProbeArch = "sm_80";
  Result<CompileOutput> probe =
      compile({.path = "probe.cu",
               .source = "extern \"C\" __global__ void probe() {}",
               .headers = {},
               .options = {std::string(kArchOption) + kProbeArch, "--modify-stack-limit=false"},
               .name = {},
               .wants_ptx = true});
  if (!probe) {
    const std::string builtins =
        builtins_.is_open()
            ? ""
            : fmt::format(
                  "; it needs libnvrtc-builtins.so.{}, which is neither beside it nor on "
                  "the loader's search path",
                  version_);
    return Status(Code::kUnsupported,
                  fmt::format("NVRTC: {} cannot compile an empty kernel: {}{}", path_,
                              probe.error().message(), builtins),
                  std::string(probe.error().log()));
  }
  const std::string build = version_of_ptx(probe->ptx);
  if (!build.starts_with(version_ + ".")) {
    return Status(Code::kUnsupported,
                  fmt::format("NVRTC: {} is version {}, and its PTX names {} as its compiler",
                              path_, version_, build.empty() ? "none" : build));
  }
  // Entries are checked for this before they are loaded.
  if (const auto wrong = wrong_cubin(probe->cubin, kProbeArch, build)) {
    return Status(Code::kUnsupported,
                  fmt::format("NVRTC: cubins of {} (version {}) are not as expected: {}", path_,
                              build, *wrong));
  }
  version_ = build;
  return {};
}

void Nvrtc::load_optional() {
#define CUBINERY_LOAD(function) \
  function##_ = reinterpret_cast<decltype(&::function)>(library_.symbol(#function));
  CUBINERY_NVRTC_OPTIONAL_FUNCTIONS(CUBINERY_LOAD)
#undef CUBINERY_LOAD
}

bool Nvrtc::can_precompile() const {
  return nvrtcGetPCHHeapSize_ != nullptr && nvrtcSetPCHHeapSize_ != nullptr &&
         nvrtcGetPCHCreateStatus_ != nullptr;
}

// The heap is the process's, whoever opened NVRTC.  A new size makes a new heap, of no use to what
// was precompiled in the old one: it is made larger once.
void Nvrtc::grow_heap() const {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::size_t bytes = 0;
  if (nvrtcGetPCHHeapSize_(&bytes) != NVRTC_SUCCESS) return;
  if (bytes < PrecompiledHeaders::kHeapBytes) {
    (void)nvrtcSetPCHHeapSize_(PrecompiledHeaders::kHeapBytes);
  }
}

Result<CompileOutput> Nvrtc::compile(const CompileInput& input) const {
  return input.share_headers && can_precompile() ? compile_shared(input) : compile_with(input, {});
}

Result<CompileOutput> Nvrtc::compile_shared(const CompileInput& input) const {
  const std::string beginning = PrecompiledHeaders::beginning_of(input.source);
  if (beginning.empty()) return compile_with(input, {});
  const std::vector<std::string> quiet = {
      "-pch-messages=false",
      "-diag-suppress=629,630,639,2226",  // why a precompiled header is not made or not used
  };
  std::unique_lock making(precompiled_->making());
  const auto known = precompiled_->find(input, beginning);
  Result<CompileOutput> output = Status(Code::kCompileFailed, "not tried");
  if (known && known->file.ok()) {
    making.unlock();
    std::vector<std::string> more = quiet;
    more.push_back("-use-pch=" + known->path());
    output = compile_with(input, more);
    if (output) output->headers = HeaderSharing::kUsed;
  } else if (!known) {
    grow_heap();
    const Result<TemporaryFolder> folder = TemporaryFolder::make("pch");
    const std::string file = folder ? folder->file("headers.pch") : "";
    std::vector<std::string> more = quiet;
    more.push_back("-create-pch=" + file);
    bool precompiled = false;
    if (folder) output = compile_with(input, more, &precompiled);
    Descriptor opened;
    if (output && precompiled) opened = open_file(file, O_RDONLY);
    if (output && opened.ok()) output->headers = HeaderSharing::kMade;
    // A source with a fault says nothing about its headers.
    if (output) precompiled_->keep(input, beginning, std::move(opened));
  }
  if (making.owns_lock()) making.unlock();
  // An error may be that of a full disk: the compiler's own word counts.
  return output ? std::move(output) : compile_with(input, {});
}

nvrtcResult Nvrtc::create(const CompileInput& input, nvrtcProgram* program) const {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& [name, text] : input.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  return nvrtcCreateProgram_(program, input.source.c_str(), input.path.c_str(),
                             static_cast<int>(names.size()), texts.data(), names.data());
}

std::string Nvrtc::log_of(nvrtcProgram program) const {
  std::string log;
  std::size_t size = 0;
  if (nvrtcGetProgramLogSize_(program, &size) == NVRTC_SUCCESS && size > 1) {
    log.resize(size);
    if (nvrtcGetProgramLog_(program, log.data()) != NVRTC_SUCCESS) log.clear();
    while (log.ends_with('\0')) log.pop_back();
  }
  return log;
}

nvrtcResult Nvrtc::take_made(const CompileInput& input, nvrtcProgram program,
                             CompileOutput* output) const {
  std::size_t size = 0;
  nvrtcResult result = NVRTC_SUCCESS;
  const char* symbol = nullptr;  // of the program
  if (!input.name.empty()) result = nvrtcGetLoweredName_(program, input.name.c_str(), &symbol);
  if (symbol != nullptr) output->symbol = symbol;
  if (result == NVRTC_SUCCESS) result = nvrtcGetCUBINSize_(program, &size);
  if (result == NVRTC_SUCCESS) {
    output->cubin.resize(size);
    result = nvrtcGetCUBIN_(program, output->cubin.data());
  }
  if (result == NVRTC_SUCCESS && input.wants_ptx) {
    result = nvrtcGetPTXSize_(program, &size);
    output->ptx.resize(size);
    if (result == NVRTC_SUCCESS) result = nvrtcGetPTX_(program, output->ptx.data());
  }
  return result;
}

Result<CompileOutput> Nvrtc::compile_with(const CompileInput& input,
                                          const std::vector<std::string>& more,
                                          bool* precompiled) const {
  nvrtcProgram handle = nullptr;
  nvrtcResult result = create(input, &handle);
  if (result != NVRTC_SUCCESS) {
    return Status(Code::kCompileFailed, fmt::format("{}: nvrtcCreateProgram: {}", input.path,
                                                    nvrtcGetErrorString_(result)));
  }
  const Program program(handle, nvrtcDestroyProgram_);
  if (!input.name.empty()) {
    result = nvrtcAddNameExpression_(handle, input.name.c_str());
    if (result != NVRTC_SUCCESS) {
      return Status(Code::kCompileFailed, fmt::format("{}: nvrtcAddNameExpression: {}", input.path,
                                                      nvrtcGetErrorString_(result)));
    }
  }
  std::vector<const char*> options;
  const std::vector<std::string> given = options_given(input.options, version_);
  options.reserve(given.size() + more.size());
  for (const std::string& option : given) options.push_back(option.c_str());
  for (const std::string& option : more) options.push_back(option.c_str());
  // A thread of the host's may have a small part of the stack that a compiler needs.
  on_large_stack([&] {
    result = nvrtcCompileProgram_(program.get(), static_cast<int>(options.size()), options.data());
  });
  if (precompiled != nullptr) {
    *precompiled = nvrtcGetPCHCreateStatus_(program.get()) == NVRTC_SUCCESS;
  }

  CompileOutput output;
  output.log = log_of(program.get());
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    if (const auto unknown = unknown_arch(given, version_)) {
      return Status(Code::kUnsupported, fmt::format("{}: {}", input.path, *unknown),
                    std::move(output.log));
    }
    return Status(Code::kUnsupported,
                  fmt::format("{}: NVRTC {} does not take the options {}", input.path, version_,
                              fmt::join(given, " ")),
                  std::move(output.log));
  }
  if (result == NVRTC_SUCCESS) result = take_made(input, program.get(), &output);
  if (result != NVRTC_SUCCESS) {
    return Status(Code::kCompileFailed,
                  fmt::format("{}: compile failed: {} (NVRTC {})", input.path,
                              nvrtcGetErrorString_(result), version_),
                  std::move(output.log));
  }
  return output;
}

}  // namespace cubinery
