// Of compilations and launches.
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cubinery/compat/deep_jit/backend/cuda/device.hpp"
#include "cubinery/kernel.h"

namespace deep_jit::cuda {

// Of one compilation; what is not set is as the runtime's defaults are.
struct CompilerOptions {
  std::optional<std::string> optimize_level{};
  std::optional<bool> fast_math{};
  std::optional<bool> ptxas_verbose{};
  std::optional<int> ptxas_register_usage_level{};
  std::optional<bool> check_no_spills{};
  std::optional<bool> check_no_local_memory{};
  std::optional<bool> with_line_info{};
  std::optional<bool> dump_ptx{};
  std::optional<bool> dump_sass{};
  std::optional<std::string> arch{};
  std::optional<std::vector<std::string>> nvcc_flags{};
  std::vector<std::string> extra_nvcc_flags{};
  std::optional<std::string> post_hook{};  // refused

  static CompilerOptions default_options(const Env& env, Device& device) {
    const bool debug = env.get<bool>("JIT_DEBUG", false);
    const bool dump = env.get<bool>("JIT_DUMP_ASM", false);
    const int standard = env.get<int>("JIT_CPP_STANDARD", 20);
    CompilerOptions options;
    options.optimize_level = "3";
    options.fast_math = false;
    options.ptxas_verbose = debug || env.get<bool>("JIT_PTXAS_VERBOSE", false);
    options.ptxas_register_usage_level = 10;
    options.check_no_spills = env.get<bool>("JIT_CHECK_NO_SPILLS", false);
    options.check_no_local_memory = env.get<bool>("JIT_CHECK_NO_LOCAL_MEMORY", false);
    options.with_line_info = debug || env.get<bool>("JIT_WITH_LINEINFO", false);
    options.dump_ptx = dump || env.get<bool>("JIT_DUMP_PTX", false);
    options.dump_sass = dump || env.get<bool>("JIT_DUMP_SASS", false);
    options.arch = device.get_arch();
    options.nvcc_flags = {"-std=c++" + std::to_string(standard), "--compiler-options=-fPIC",
                          "--compiler-options=-fconcepts", "--expt-relaxed-constexpr",
                          "--expt-extended-lambda"};
    return options;
  }

  CompilerOptions override_with(const CompilerOptions& overrides) const {
    CompilerOptions result = *this;
    const auto take = [&](auto member) {
      if (overrides.*member) result.*member = overrides.*member;
    };
    take(&CompilerOptions::optimize_level);
    for (const auto member :
         {&CompilerOptions::fast_math, &CompilerOptions::ptxas_verbose,
          &CompilerOptions::check_no_spills, &CompilerOptions::check_no_local_memory,
          &CompilerOptions::with_line_info, &CompilerOptions::dump_ptx,
          &CompilerOptions::dump_sass}) {
      take(member);
    }
    take(&CompilerOptions::ptxas_register_usage_level);
    take(&CompilerOptions::arch);
    take(&CompilerOptions::nvcc_flags);
    take(&CompilerOptions::post_hook);
    result.extra_nvcc_flags.insert(result.extra_nvcc_flags.end(),
                                   overrides.extra_nvcc_flags.begin(),
                                   overrides.extra_nvcc_flags.end());
    return result;
  }

  // All that is set, one behind the other: what tells options apart.
  void append_to(std::string* key) const {
    const auto add = [&](const std::optional<std::string>& text) {
      key->append(text ? *text : "-") += '\n';
    };
    for (const auto& flag : {fast_math, ptxas_verbose, check_no_spills, check_no_local_memory,
                             with_line_info, dump_ptx, dump_sass}) {
      *key += flag ? (*flag ? '1' : '0') : '-';
    }
    const int level = ptxas_register_usage_level.value_or(-1);
    key->append(reinterpret_cast<const char*>(&level), sizeof(level));
    add(optimize_level);
    add(arch);
    if (post_hook) key->append("\x03");
    if (nvcc_flags) {
      for (const std::string& flag : *nvcc_flags) key->append(flag) += '\n';
    }
    *key += nvcc_flags ? '\x01' : '\x02';  // of which no flag has any
    for (const std::string& flag : extra_nvcc_flags) key->append(flag) += '\n';
    *key += '\0';
  }

  // As nvcc has them.
  std::vector<std::string> get_flags() const {
    DJ_HOST_ASSERT(arch && !arch->empty(), "CUDA architecture must be specified");
    DJ_HOST_ASSERT(optimize_level && !optimize_level->empty(),
                   "optimization level must be specified");
    DJ_HOST_ASSERT(ptxas_register_usage_level, "PTXAS register usage level must be specified");
    std::vector<std::string> flags = {"--gpu-architecture=sm_" + *arch, "-O" + *optimize_level,
                                      "--compiler-options=-O" + *optimize_level};
    const auto add = [&](const std::optional<bool>& wanted, const char* flag) {
      if (wanted.value_or(false)) flags.emplace_back(flag);
    };
    add(fast_math, "--use_fast_math");
    add(ptxas_verbose, "--ptxas-options=--verbose");
    flags.push_back("--ptxas-options=--register-usage-level=" +
                    std::to_string(*ptxas_register_usage_level));
    add(check_no_spills, "--ptxas-options=--warn-on-spills");
    add(check_no_local_memory, "--ptxas-options=--warn-on-local-memory-usage");
    add(with_line_info, "--generate-line-info");
    if (nvcc_flags) flags.insert(flags.end(), nvcc_flags->begin(), nvcc_flags->end());
    flags.insert(flags.end(), extra_nvcc_flags.begin(), extra_nvcc_flags.end());
    return flags;
  }
};

// Of one launch; what is not set is as the runtime's defaults are.
struct LaunchOptions {
  std::optional<CUstream> stream{};  // not set: get_current_cuda_stream()
  std::optional<int> num_smem_bytes{};
  std::optional<dim3> grid_dim{};
  std::optional<dim3> block_dim{};
  std::optional<dim3> cluster_dim{};
  std::optional<bool> cooperative{};
  std::optional<bool> enable_pdl{};
  std::optional<bool> nonportable_cluster_size_allowed{};

  static LaunchOptions default_options(const Env&) {
    LaunchOptions options;
    options.num_smem_bytes = 0;
    options.cluster_dim = dim3(1, 1, 1);
    options.cooperative = options.enable_pdl = options.nonportable_cluster_size_allowed = false;
    return options;
  }

  LaunchOptions override_with(const LaunchOptions& overrides) const {
    LaunchOptions result = *this;
    const auto take = [](auto& into, const auto& from) {
      if (from) into = from;
    };
    take(result.stream, overrides.stream);
    take(result.num_smem_bytes, overrides.num_smem_bytes);
    take(result.grid_dim, overrides.grid_dim);
    take(result.block_dim, overrides.block_dim);
    take(result.cluster_dim, overrides.cluster_dim);
    take(result.cooperative, overrides.cooperative);
    take(result.enable_pdl, overrides.enable_pdl);
    take(result.nonportable_cluster_size_allowed, overrides.nonportable_cluster_size_allowed);
    return result;
  }

  // As cubinery has them.
  cubinery::Launch launch() const {
    DJ_HOST_ASSERT(num_smem_bytes, "CUDA dynamic shared-memory size must be specified");
    DJ_HOST_ASSERT(grid_dim, "CUDA grid dimension must be specified");
    DJ_HOST_ASSERT(block_dim, "CUDA block dimension must be specified");
    DJ_HOST_ASSERT(cluster_dim, "CUDA cluster dimension must be specified");
    DJ_HOST_ASSERT(cooperative, "CUDA cooperative option must be specified");
    DJ_HOST_ASSERT(enable_pdl, "CUDA PDL option must be specified");
    DJ_HOST_ASSERT(nonportable_cluster_size_allowed,
                   "CUDA non-portable cluster option must be specified");
    DJ_HOST_ASSERT(*num_smem_bytes >= 0, "CUDA dynamic shared-memory size must not be negative: {}",
                   *num_smem_bytes);
    const std::uint64_t cluster = std::uint64_t{cluster_dim->x} * cluster_dim->y * cluster_dim->z;
    DJ_HOST_ASSERT(cluster <= 8 || *nonportable_cluster_size_allowed,
                   "a cluster of {} blocks needs nonportable_cluster_size_allowed", cluster);
    const auto dims = [](const dim3& from) { return cubinery::Dim3{from.x, from.y, from.z}; };
    return {.grid = dims(*grid_dim),
            .block = dims(*block_dim),
            .shared_bytes = static_cast<unsigned>(*num_smem_bytes),
            .cluster = dims(*cluster_dim),
            .cooperative = *cooperative,
            .enable_pdl = *enable_pdl};
  }
};

}  // namespace deep_jit::cuda
