#include "runtime/jit/nvrtc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cache/cubin_note.h"
#include "runtime/jit/native_code.h"
#include "runtime/jit/nvrtc_places.h"
#include "runtime/jit/on_threads.h"

namespace cubinery {
namespace {

// Cubins of older ones (12.4, 12.8 and 12.9 were tried) do not name the compiler that made them.
constexpr int kMinMajor = 13;
constexpr int kMinMinor = 0;

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
  std::vector<std::string> paths = {"libnvrtc.so.13", "libnvrtc.so"};
  for (std::string& path : nvrtc_places("/", own_folders())) paths.push_back(std::move(path));
  return paths;
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

Result<std::shared_ptr<const Nvrtc>> Nvrtc::open(const std::string& path, const Trust& trust) {
  std::shared_ptr<Nvrtc> nvrtc(new Nvrtc);
  const std::vector<std::string> places = path.empty() ? candidates() : std::vector{path};
  std::string why_not;
  if (!nvrtc->open_first(places, trust, &why_not)) {
    return Status(Code::kUnsupported,
                  fmt::format("NVRTC: cannot open any of: {} ({}); install the CUDA toolkit or the "
                              "PyPI package nvidia-cuda-nvrtc, or name libnvrtc.so in "
                              "Options::nvrtc_path (CUBINERY_NVRTC)",
                              fmt::join(places, ", "), why_not));
  }
  CUBINERY_RETURN_IF_ERROR(nvrtc->load());
  CUBINERY_RETURN_IF_ERROR(nvrtc->check_version());
  nvrtc->load_optional();
  nvrtc->open_builtins(trust);
  CUBINERY_RETURN_IF_ERROR(nvrtc->find_build());
  return std::shared_ptr<const Nvrtc>(std::move(nvrtc));
}

bool Nvrtc::open_first(const std::vector<std::string>& candidates, const Trust& trust,
                       std::string* why_not) {
  for (const std::string& candidate : candidates) {
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
  }
  for (const std::string& passed_over : passed_over_) {
    *why_not += fmt::format("{}{}", why_not->empty() ? "" : "; ", passed_over);
  }
  return false;
}

Status Nvrtc::load() {
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

Status Nvrtc::check_version() {
  int major = 0;
  int minor = 0;
  if (nvrtcVersion_(&major, &minor) != NVRTC_SUCCESS || major < kMinMajor ||
      (major == kMinMajor && minor < kMinMinor)) {
    return Status(Code::kUnsupported,
                  fmt::format("NVRTC: {} is version {}.{}; needs {}.{} or newer", path_, major,
                              minor, kMinMajor, kMinMinor));
  }
  version_ = fmt::format("{}.{}", major, minor);
  return {};
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
  Result<CompileOutput> probe =
      compile({.path = "probe.cu",
               .source = "extern \"C\" __global__ void probe() {}",
               .headers = {},
               .options = {"--gpu-architecture=sm_80", "--modify-stack-limit=false"},
               .name = {}});
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
  const std::optional<CubinNote> note = read_cubin_note(probe->cubin);
  if (!note) {
    return Status(
        Code::kUnsupported,
        fmt::format("NVRTC: cubins of {} (version {}) do not name their compiler; needs {}.{} or "
                    "newer",
                    path_, version_, kMinMajor, kMinMinor));
  }
  version_ = note->compiler;
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
    const PrecompiledFile file;
    std::vector<std::string> more = quiet;
    more.push_back("-create-pch=" + file.path());
    bool precompiled = false;
    if (!file.path().empty()) output = compile_with(input, more, &precompiled);
    Descriptor opened;
    if (output && precompiled) opened = open_file(file.path(), O_RDONLY);
    if (output && opened.ok()) output->headers = HeaderSharing::kMade;
    // A source with a fault says nothing about its headers.
    if (output) precompiled_->keep(input, beginning, std::move(opened));
  }
  if (making.owns_lock()) making.unlock();
  // An error may be that of a full disk: the compiler's own word counts.
  return output ? std::move(output) : compile_with(input, {});
}

Result<CompileOutput> Nvrtc::compile_with(const CompileInput& input,
                                          const std::vector<std::string>& more,
                                          bool* precompiled) const {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& [name, text] : input.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  nvrtcProgram handle = nullptr;
  nvrtcResult result =
      nvrtcCreateProgram_(&handle, input.source.c_str(), input.path.c_str(),
                          static_cast<int>(names.size()), texts.data(), names.data());
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
  for (const std::string& option : input.options) options.push_back(option.c_str());
  for (const std::string& option : more) options.push_back(option.c_str());
  // A thread of the host's may have a small part of the stack that a compiler needs.
  on_large_stack([&] {
    result = nvrtcCompileProgram_(program.get(), static_cast<int>(options.size()), options.data());
  });
  if (precompiled != nullptr) {
    *precompiled = nvrtcGetPCHCreateStatus_(program.get()) == NVRTC_SUCCESS;
  }

  CompileOutput output;
  std::size_t size = 0;
  if (nvrtcGetProgramLogSize_(program.get(), &size) == NVRTC_SUCCESS && size > 1) {
    output.log.resize(size);
    if (nvrtcGetProgramLog_(program.get(), output.log.data()) != NVRTC_SUCCESS) output.log.clear();
    while (output.log.ends_with('\0')) output.log.pop_back();
  }
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    return Status(Code::kUnsupported,
                  fmt::format("{}: NVRTC {} does not take the options {}", input.path, version_,
                              fmt::join(input.options, " ")),
                  std::move(output.log));
  }
  const char* symbol = nullptr;  // of the program
  if (result == NVRTC_SUCCESS && !input.name.empty()) {
    result = nvrtcGetLoweredName_(program.get(), input.name.c_str(), &symbol);
  }
  if (symbol != nullptr) output.symbol = symbol;
  if (result == NVRTC_SUCCESS) result = nvrtcGetCUBINSize_(program.get(), &size);
  if (result == NVRTC_SUCCESS) {
    output.cubin.resize(size);
    result = nvrtcGetCUBIN_(program.get(), output.cubin.data());
  }
  if (result != NVRTC_SUCCESS) {
    return Status(Code::kCompileFailed,
                  fmt::format("{}: compile failed: {} (NVRTC {})", input.path,
                              nvrtcGetErrorString_(result), version_),
                  std::move(output.log));
  }
  return output;
}

}  // namespace cubinery
