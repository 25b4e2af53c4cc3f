// A kernel library in DeepJIT's way: sources that instantiate a template of its headers, a runtime
// that is made when it is first used, flags for all kernels.  One include says whose runtime it is.
#pragma once

#if defined(ROW_OPS_ON_CUBINERY)
#include <cubinery/compat/deep_jit.hpp>
#else
#include <deep_jit/backend/cuda/backend.hpp>
#endif

#include <filesystem>
#include <memory>
#include <string>

namespace row_ops {

inline deep_jit::LazyInit<deep_jit::Runtime<deep_jit::CUDA>> jit(nullptr);

// The functions of libcuda that DeepJIT has not.
DJ_DECL_LAZY_DL_FUNCTION(deep_jit::cuda::driver::get_cuda_handle, cuDriverGetVersion);

inline void init(const std::string& library_root) {
  const std::filesystem::path root = std::filesystem::absolute(library_root);
  const deep_jit::Config config(root, "ROW_OPS", "row-ops-1", {root / "include"}, {"row_ops/"});
  jit = deep_jit::LazyInit<deep_jit::Runtime<deep_jit::CUDA>>([config] {
    auto runtime = std::make_shared<deep_jit::Runtime<deep_jit::CUDA>>(config);
    runtime->default_compiler_options.nvcc_flags->emplace_back("--diag-suppress=39,174,177");
    runtime->default_compiler_options.nvcc_flags->emplace_back(
        "--compiler-options=-Wno-deprecated-declarations,-Wno-abi");
    if (deep_jit::get_env<int>("ROW_OPS_PDL", 0) != 0) {
      runtime->default_launch_options.enable_pdl = true;
    }
    return runtime;
  });
}

struct Rows {
  float* y;
  const float* x;
  int rows;
  int cols;
};

inline void scale(const Rows& rows, float by, CUstream stream) {
  DJ_HOST_ASSERT(rows.rows > 0 && rows.cols > 0, "no rows: {} x {}", rows.rows, rows.cols);
  const int threads = rows.cols >= 256 ? 256 : 64;
  const auto kernel = jit->compile("scale", R"(
#include <row_ops/scale.cuh>

static void __instantiate_kernel() {
    auto ptr = reinterpret_cast<void*>(&row_ops::scale<)" +
                                                std::to_string(threads) + R"(, float>);
}
)");
  jit->launch(kernel,
              {
                  .stream = stream,
                  .grid_dim = dim3(static_cast<unsigned>(rows.rows), 1, 1),
                  .block_dim = dim3(static_cast<unsigned>(threads), 1, 1),
              },
              rows.y, rows.x, by, rows.cols);
}

struct Pair {
  int first;
  double second;
};

// `elsewhere`: of a library's that only a header of its own knows.
inline void put_pair(double* y, const Pair& own, const deep_jit::NoRefPtr& elsewhere,
                     CUstream stream) {
  static const auto options = deep_jit::cuda::LaunchOptions{
      .num_smem_bytes = 64,
      .grid_dim = dim3(2, 1, 1),
      .block_dim = dim3(32, 1, 1),
      .cluster_dim = dim3(2, 1, 1),
      .cooperative = true,
  };
  deep_jit::cuda::CompilerOptions compiler;
  compiler.extra_nvcc_flags = {"-DRANKS=3"};
  const auto kernel = jit->compile("put_pair", R"(
#include <row_ops/copy.cuh>

static void __instantiate_kernel() {
    auto ptr = reinterpret_cast<void*>(&row_ops::put_pair<RANKS>);
}
)",
                                   compiler);
  const auto on_stream = options.override_with(deep_jit::cuda::LaunchOptions{.stream = stream});
  jit->launch(kernel, on_stream, y, own, elsewhere);
}

inline int sm_count() { return jit->device.get_num_sms(); }

inline int driver_version() {
  int version = 0;
  DJ_CUDA_DRIVER_CHECK(lazy_cuDriverGetVersion(&version));
  return version;
}

}  // namespace row_ops
