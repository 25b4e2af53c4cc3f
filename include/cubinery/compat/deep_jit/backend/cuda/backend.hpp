// What DeepJIT's users include.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cubinery/compat/deep_jit/backend/cuda/kernel.hpp"
#include "cubinery/compat/deep_jit/backend/cuda/options.hpp"
#include "cubinery/compat/deep_jit/runtime/config.hpp"
#include "cubinery/compat/deep_jit/runtime/runtime.hpp"
#include "cubinery/compat/deep_jit/utils/str.hpp"
#include "cubinery/context.h"

namespace deep_jit {

namespace internal {

inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// The toolkit whose headers kernels include.
inline std::filesystem::path toolkit() {
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (std::string folder = variable(name); !folder.empty()) return folder;
  }
  for (const std::string& folder : split(variable("PATH"), ':')) {
    std::error_code ignored;
    if (!folder.empty() && std::filesystem::exists(folder + "/nvcc", ignored)) {
      return std::filesystem::path(folder).parent_path();
    }
  }
  return "/usr/local/cuda";
}

// Flags of nvcc, one after the other.
class Flags {
 public:
  explicit Flags(const std::vector<std::string>& flags) : flags_(flags) {}

  const std::string* next() { return next_ < flags_.size() ? &flags_[next_++] : nullptr; }
  // What the flag that was next has behind one of these names, or the one after it.
  std::optional<std::string> value_of(std::initializer_list<std::string_view> names) {
    std::string_view flag = flags_[next_ - 1];
    for (const std::string_view name : names) {
      if (!flag.starts_with(name)) continue;
      flag.remove_prefix(name.size());
      if (flag.empty()) return next_ < flags_.size() ? flags_[next_++] : std::string();
      return std::string(flag.substr(flag[0] == '=' || flag[0] == ' ' ? 1 : 0));
    }
    return std::nullopt;
  }

 private:
  const std::vector<std::string>& flags_;
  std::size_t next_ = 0;
};

// Whether a flag has no effect on what NVRTC makes: it is said of host code, of which there is
// none, or of what NVRTC does anyway.
inline bool is_without_effect(const std::string& flag, Flags* flags) {
  for (const char* name :
       {"-expt-relaxed-constexpr", "-expt-extended-lambda", "-extended-lambda"}) {
    if (flag == name || flag == std::string("-") + name) return true;
  }
  if (flag.size() == 3 && flag.starts_with("-O")) return true;
  const std::optional<std::string> list = flags->value_of({"-Xcompiler", "--compiler-options"});
  if (!list) return false;
  for (const std::string& option : split(*list, ',')) {
    const auto begins = [&](const char* with) { return option.starts_with(with); };
    const bool is_known = begins("-W") || begins("-O") || begins("-g") || option == "-w" ||
                          option == "-fPIC" || option == "-fconcepts" || option == "-pthread" ||
                          option == "-fno-strict-aliasing" || begins("-fvisibility=");
    DJ_HOST_ASSERT(is_known,
                   "{} has {}; accepted: -W..., -w, -O..., -g..., -fPIC, -fconcepts, -pthread, "
                   "-fno-strict-aliasing, -fvisibility=...; there is no host code",
                   flag, option);
  }
  return true;
}

}  // namespace internal

// The backend.
struct CUDA {
  using Device = cuda::Device;
  using Kernel = cuda::Kernel;
  using CompilerOptions = cuda::CompilerOptions;
  using LaunchOptions = cuda::LaunchOptions;

  // What compiles: PREFIX_JIT_COMPILER, nvcc where PREFIX_JIT_NVCC_COMPILER names one, the
  // config's.
  static cubinery::Compiler compiler(const Config& config, const Env& env) {
    const std::string chosen = env.get<std::string>("JIT_COMPILER", "");
    if (chosen == "nvcc") return cubinery::Compiler::kNvcc;
    if (chosen == "nvrtc") return cubinery::Compiler::kNvrtc;
    DJ_HOST_ASSERT(chosen.empty(), "{}_JIT_COMPILER is {}; accepted: nvrtc, nvcc", env.prefix,
                   chosen);
    const bool has_nvcc = !env.get<std::string>("JIT_NVCC_COMPILER", "").empty();
    return has_nvcc ? cubinery::Compiler::kNvcc : config.compiler;
  }

  // What cubinery's own variables say, and over it the library's.
  static cubinery::Options options(const Env& env, int device) {
    cubinery::Options options =
        internal::value_of(cubinery::Options::from_env(), "the environment");
    options.device = device;
    if (const auto list = env.get<std::string>("JIT_CACHE_DIR")) {
      std::vector<std::string> folders = internal::split(*list, ':');
      DJ_HOST_ASSERT(std::find(folders.begin(), folders.end(), "") == folders.end(),
                     "disk cache path list contains an empty path: {}", *list);
      options.cache_dir = folders[0];
      options.cache_layers.insert(options.cache_layers.begin(), folders.begin() + 1, folders.end());
    }
    if (const auto path = env.get<std::string>("JIT_NVCC_COMPILER"); path && !path->empty()) {
      options.nvcc_path = std::filesystem::absolute(*path).lexically_normal().string();
    }
    options.log = [debug = env.get<bool>("JIT_DEBUG", false)](cubinery::LogLevel level,
                                                              std::string_view text) {
      if (level == cubinery::LogLevel::kInfo && !debug) return;
      std::fprintf(stderr, "cubinery: %.*s\n", static_cast<int>(text.size()), text.data());
    };
    return options;
  }

  // Writes what was asked for of a kernel, "scale", into dumps/ of the cache: its PTX and its SASS.
  static void dump(const std::string& name, const cubinery::CompiledKernel& made,
                   const cubinery::Context& context, const cubinery::KernelSource& text,
                   const CompilerOptions& options, const std::string& cache_dir) {
    const auto write = [&](const std::optional<bool>& is_wanted, cubinery::Listing form,
                           const char* suffix) {
      if (!is_wanted.value_or(false)) return;
      const std::filesystem::path folder = std::filesystem::path(cache_dir) / "dumps";
      const std::filesystem::path path =
          folder / (name + "." + std::filesystem::path(made.path).stem().string() + suffix);
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) return;
      const std::string listing = internal::value_of(context.listing(text, form), name);
      std::filesystem::create_directories(folder, ignored);
      std::ofstream file(path);
      file << listing << std::flush;
      DJ_HOST_ASSERT(!made.path.empty() && file.good(), "{}{} could not be written to {}", name,
                     suffix, folder.string());
    };
    write(options.dump_ptx, cubinery::Listing::kPtx, ".ptx");
    write(options.dump_sass, cubinery::Listing::kSass, ".sass");
  }

  // What cubinery compiles.  No option is passed over: what it has no like of is an exception.
  static cubinery::KernelSource text(const std::string& source, const CompilerOptions& options,
                                     const Config& config, cubinery::Compiler compiler) {
    DJ_HOST_ASSERT(!options.post_hook,
                   "post_hook is \"{}\"; accepted: none: the cache holds what the compiler made, "
                   "and could not answer for what a script makes of it",
                   *options.post_hook);
    cubinery::KernelSource text;
    text.source = source;
    text.allow_spills = !options.check_no_spills.value_or(false);
    text.compiler = compiler;
    // As a comment it changes nothing but the identity.
    if (!config.extra_signature.empty()) {
      text.source += "\n// extra_signature ";
      for (const char c : config.extra_signature) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(c);
        if (byte > 0x20 && byte < 0x7f && c != '\\' && c != '%') {
          text.source += c;
        } else {
          text.source += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
        }
      }
      text.source += '\n';
    }
    const std::vector<std::string> all = options.get_flags();
    internal::Flags flags(all);
    flags.next();  // the architecture: each has a context of its own
    while (const std::string* flag = flags.next()) {
      if (std::optional<std::string> folder = flags.value_of({"-I", "--include-path"})) {
        DJ_HOST_ASSERT(folder->starts_with('/'), "{}: folders must be absolute", *flag);
        text.includes.push_back(*std::move(folder));
      } else if (compiler == cubinery::Compiler::kNvcc ||
                 !internal::is_without_effect(*flag, &flags)) {
        text.options.push_back(*flag);
      }
    }
    for (const std::filesystem::path& folder : config.include_dirs) {
      text.includes.push_back(folder.string());
    }
    if (compiler == cubinery::Compiler::kNvrtc) {  // nvcc finds its own
      const std::filesystem::path headers = internal::toolkit() / "include";
      text.includes.push_back(headers.string());
      text.includes.push_back((headers / "cccl").string());
    }
    return text;
  }
};

}  // namespace deep_jit
