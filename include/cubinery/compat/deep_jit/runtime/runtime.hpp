// Compiles, keeps and launches a library's kernels.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cubinery/compat/deep_jit/runtime/config.hpp"
#include "cubinery/compat/deep_jit/utils/env.hpp"
#include "cubinery/compat/deep_jit/utils/gil.hpp"
#include "cubinery/compat/deep_jit/utils/lazy.hpp"
#include "cubinery/context.h"

namespace deep_jit {

// Of the device that is current when it is made; there must be one.  Thread-safe, but for changes
// of the defaults.
template <typename Backend>
class Runtime {
 public:
  using Device = typename Backend::Device;
  using Kernel = typename Backend::Kernel;
  using CompilerOptions = typename Backend::CompilerOptions;
  using LaunchOptions = typename Backend::LaunchOptions;

  const Config config;
  const Env env;
  Device device;
  CompilerOptions default_compiler_options;
  LaunchOptions default_launch_options;

  explicit Runtime(Config of_library)
      : config(std::move(of_library)),
        env(config.env_prefix),
        default_compiler_options(CompilerOptions::default_options(env, device)),
        default_launch_options(LaunchOptions::default_options(env)),
        compiler_(Backend::compiler(config, env)),
        share_headers_(env.template get<bool>("JIT_SHARE_HEADERS", false)),
        options_(Backend::options(env, device.get_index())) {
    static_cast<void>(context(*default_compiler_options.arch));
  }

  // The only kernel of `source`; `name` is a label.  One compilation, in whichever process of those
  // that share the cache; from then on it is found there, and a second time in memory, where it is
  // looked up by source and options alone: headers are read again by the next runtime.
  std::shared_ptr<Kernel> compile(const std::string& name, const std::string& source,
                                  const CompilerOptions& override_options = {}) {
    check_label(name);
    std::string key;
    default_compiler_options.append_to(&key);
    override_options.append_to(&key);
    key += source;
    if (std::shared_ptr<Kernel> known = find(key)) return known;
    const CompilerOptions options = default_compiler_options.override_with(override_options);
    const GilScopedRelease release;
    const cubinery::KernelSource text = this->text(source, options);
    const auto begin = std::chrono::steady_clock::now();
    if (prints_compiler(options) || options.dump_ptx == true || options.dump_sass == true) {
      static_cast<void>(compiled(name, text, options));
    }
    cubinery::Kernel kernel = internal::value_of(context(*options.arch).get(text), name);
    check_local_memory(name, options, kernel.info());
    if (prints("JIT_PRINT_LOAD_TIME")) {
      const std::chrono::duration<double, std::milli> passed =
          std::chrono::steady_clock::now() - begin;
      std::printf("Load time (%s): %.2f ms\n", name.c_str(), passed.count());
    }
    const auto made = std::make_shared<Kernel>(name, std::move(kernel), device.get_index());
    const std::lock_guard lock(mutex_);
    return kernels_.emplace(std::move(key), made).first->second;
  }

  // The same without loading it: the cache's entry, one file.
  std::filesystem::path compile_without_load(const std::string& name, const std::string& source,
                                             const CompilerOptions& override_options = {}) {
    const CompilerOptions options = default_compiler_options.override_with(override_options);
    check_label(name);
    const GilScopedRelease release;
    const cubinery::CompiledKernel made = compiled(name, text(source, options), options);
    check_local_memory(name, options, made.info);
    DJ_HOST_ASSERT(!made.path.empty(), "{} could not be written to the cache", name);
    return made.path;
  }

  // As many arguments as the kernel has parameters, each of its parameter's size.
  template <typename... Args>
  void launch(const std::shared_ptr<Kernel>& kernel, const LaunchOptions& override_options,
              const Args&... args) {
    DJ_HOST_ASSERT(kernel != nullptr, "kernel must not be null");
    kernel->launch(default_launch_options.override_with(override_options), args...);
  }

  // What a kernel is cached under, the whole of it.
  std::string cache_key(const std::string& source, const CompilerOptions& options) {
    return internal::value_of(context(*options.arch).explain(text(source, options)), "cache_key")
        .identity;
  }

  // cubinery's own: what finds kernels for an architecture, "90a", and counts what it did.
  cubinery::Context context(const std::string& arch) {
    const std::lock_guard lock(mutex_);
    auto found = contexts_.find(arch);
    if (found == contexts_.end()) {
      cubinery::Options options = options_;
      options.arch = "sm_" + arch;
      found = contexts_
                  .emplace(arch, internal::value_of(cubinery::Context::create(std::move(options)),
                                                    "sm_" + arch))
                  .first;
    }
    return found->second;
  }

 private:
  static void check_label(const std::string& name) {
    constexpr const char* kCharacters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    DJ_HOST_ASSERT(!name.empty() && name.find_first_not_of(kCharacters) == name.npos,
                   "cache tag must contain only letters, digits, or underscores: {}", name);
  }

  static void check_local_memory(const std::string& name, const CompilerOptions& options,
                                 const cubinery::KernelInfo& info) {
    DJ_HOST_ASSERT(!options.check_no_local_memory.value_or(false) ||
                       info.log.find("ocal memory used") == info.log.npos,
                   "{} uses local memory:\n{}", name, info.log);
  }

  std::shared_ptr<Kernel> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(key);
    return found == kernels_.end() ? nullptr : found->second;
  }

  cubinery::KernelSource text(const std::string& source, const CompilerOptions& options) const {
    cubinery::KernelSource text = Backend::text(source, options, config, compiler_);
    text.share_headers = share_headers_;
    return text;
  }

  bool prints(const char* suffix) const {
    return env.template get<bool>("JIT_DEBUG", false) || env.template get<bool>(suffix, false);
  }
  bool prints_compiler(const CompilerOptions& options) const {
    return options.ptxas_verbose.value_or(false) || prints("JIT_PRINT_COMPILER_COMMAND");
  }

  cubinery::CompiledKernel compiled(const std::string& name, const cubinery::KernelSource& text,
                                    const CompilerOptions& options) {
    const cubinery::Context context = this->context(*options.arch);
    cubinery::CompiledKernel made = internal::value_of(context.compile(text), name);
    Backend::dump(name, made, context, text, options, options_.cache_dir);
    if (made.source != cubinery::Source::kCompiled || !prints_compiler(options)) return made;
    std::string given;
    for (const std::string& option : internal::value_of(context.explain(text), name).options) {
      given += ' ' + option;
    }
    std::printf("%s: %s %s%s\n%s: %d registers, %d bytes of spills, %d bytes of shared memory\n%s",
                name.c_str(), cubinery::to_string(text.compiler), made.info.nvrtc.c_str(),
                given.c_str(), name.c_str(), made.info.registers, made.info.spill_store_bytes,
                made.info.static_shared_bytes, made.info.log.c_str());
    return made;
  }

  const cubinery::Compiler compiler_;
  const bool share_headers_;
  const cubinery::Options options_;
  std::mutex mutex_;  // of what is below
  std::map<std::string, cubinery::Context> contexts_;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels_;
};

template <typename Backend>
LazyInit<Runtime<Backend>> create_lazy_jit(Config config) {
  return LazyInit<Runtime<Backend>>(
      [config = std::move(config)] { return std::make_shared<Runtime<Backend>>(config); });
}

}  // namespace deep_jit
