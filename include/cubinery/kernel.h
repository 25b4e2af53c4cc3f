// A compiled kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "cubinery/status.h"

struct CUstream_st;

namespace cubinery {

// CUDA's stream handle: a CUstream or a cudaStream_t.  nullptr is the legacy default stream.
using Stream = CUstream_st*;

// What the compiler and the cache know about a kernel.
struct KernelInfo {
  std::string kernel{};     // template folder and symbol: "gdn_decode"
  std::string canonical{};  // the key: "gdn_decode;dtype=bf16;..."
  std::string arch{};       // "sm_90a"
  std::string nvrtc{};      // "13.0.88"
  int registers = 0;        // per thread
  int static_shared_bytes = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  double compile_ms = 0;  // when it was compiled
  std::string log{};      // the compiler's log, empty when it had nothing to say but resources
};

// Grid and attributes of one launch.  Block size and shared memory come from the key.
struct Launch {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  // Thread block cluster; 1, 1, 1 launches without one.  Needs sm_90 or newer.
  unsigned cluster_x = 1, cluster_y = 1, cluster_z = 1;
  // Programmatic dependent launch (PDL): the kernel may start before the one before it on the
  // stream has ended, and waits for it itself (common/launch.cuh).  Needs sm_90 or newer.
  bool enable_pdl = false;
};

// A kernel loaded on one device.  Immutable; copies share it and all methods are safe to call from
// any thread.  Keeps the driver and the library loaded while any copy lives: it must live as long
// as CUDA graphs that captured its launches.  Kernels, operators and contexts may come and go while
// any thread captures a stream, in every mode.
class Kernel {
 public:
  const KernelInfo& info() const&;
  KernelInfo info() && { return std::as_const(*this).info(); }

  // Enqueues the kernel on `stream` with `params`, the struct that its __global__ function takes.
  // Does not allocate, lock or synchronise, and may be captured in a CUDA graph.
  //
  // kInvalidArgument: sizeof(params) is not the size of the kernel's parameter.
  // kUnsupported: a cluster or launch with PDL on a device that has none.
  // kDriver: CUDA refused the launch.
  template <class Params>
  Status launch(Stream stream, const Launch& launch, const Params& params) const {
    static_assert(std::is_trivially_copyable_v<Params>,
                  "kernel parameters are copied byte by byte");
    return launch_bytes(stream, launch, &params, sizeof(Params));
  }

  // CUDA's own handle, a CUfunction, for tools and comparisons.
  void* cuda_function() const;

  // For the library itself.
  struct State;
  explicit Kernel(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const& { return *state_; }

 private:
  Status launch_bytes(Stream stream, const Launch& launch, const void* params,
                      std::size_t bytes) const;

  std::shared_ptr<const State> state_;
};

}  // namespace cubinery
