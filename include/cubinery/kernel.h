// A compiled kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cubinery/status.h"

struct CUstream_st;

namespace cubinery {

// CUDA's stream handle: a CUstream or a cudaStream_t.  nullptr is the legacy default stream.
using Stream = CUstream_st*;

// What the compiler and the cache know about a kernel.
struct KernelInfo {
  std::string kernel{};     // template folder and symbol: "gdn_decode"; of a text the function
  std::string canonical{};  // the key: "gdn_decode;dtype=bf16;..."
  std::string arch{};       // "sm_90a"
  std::string nvrtc{};      // "13.0.88"
  int registers = 0;        // per thread
  int static_shared_bytes = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  double compile_ms = 0;  // when it was compiled
  std::string log{};      // the compiler's log, empty when it had nothing to say but resources
  std::string symbol{};   // of a kernel from a text: the function's name in the cubin
};

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// Grid, block and attributes of one launch.  Block and shared memory of a kernel with a key come
// from the key, and stay as they are here; a kernel from a text needs its block.
struct Launch {
  Dim3 grid{};
  Dim3 block{.x = 0};         // threads
  unsigned shared_bytes = 0;  // dynamic shared memory of a block
  // Thread block cluster; 1, 1, 1 launches without one.  Needs sm_90 or newer.
  Dim3 cluster{};
  // All blocks are resident at once, and the grid may wait for itself.
  bool cooperative = false;
  // Programmatic dependent launch (PDL): the kernel may start before the one before it on the
  // stream has ended, and waits for it itself (common/launch.cuh).  Needs sm_90 or newer.
  bool enable_pdl = false;
};

namespace internal {

template <class Arg>
constexpr const void* argument_of(const Arg& arg) {
  static_assert(!std::is_array_v<Arg>,
                "an array is no kernel argument: pass a pointer to device memory, or a struct");
  static_assert(!std::is_null_pointer_v<Arg>,
                "nullptr has no type of its own: pass a typed null pointer, as "
                "static_cast<float*>(nullptr)");
  static_assert(std::is_trivially_copyable_v<Arg>, "kernel parameters are copied byte by byte");
  return std::addressof(arg);
}

}  // namespace internal

// A kernel loaded on one device.  Immutable; copies share it and all methods are safe to call from
// any thread.  Keeps the driver and the library loaded while any copy lives: it must live as long
// as CUDA graphs that captured its launches.  Kernels, operators and contexts may come and go while
// any thread captures a stream, in every mode.
class Kernel {
 public:
  const KernelInfo& info() const&;
  KernelInfo info() && { return std::as_const(*this).info(); }

  // Enqueues the kernel on `stream` with what its __global__ function takes: of a kernel with a key
  // one struct.  Arguments are copied byte by byte, so each has the size of its parameter: a
  // float for a double is refused, an int for a float is not.  Does not allocate, lock or
  // synchronise, and may be captured in a CUDA graph.
  //
  // kInvalidArgument: another number of arguments, or an argument of another size; a grid, block or
  // cluster of nothing, a grid that its clusters do not divide, more threads or shared memory than
  // a block may have; a block or shared memory for a kernel whose key has them.
  // kUnsupported: a cluster or launch with PDL on a device that has none.
  // kDriver: CUDA refused the launch.
  template <class... Args>
  Status launch(Stream stream, const Launch& launch, const Args&... args) const {
    const void* const arguments[] = {internal::argument_of(args)..., nullptr};
    static constexpr std::size_t kBytes[] = {sizeof(Args)..., 0};
    return launch_array(stream, launch, arguments, kBytes, sizeof...(Args));
  }
  // The same with arguments that only a running program knows: bytes[i] of them at arguments[i].
  Status launch_array(Stream stream, const Launch& launch, const void* const* arguments,
                      const std::size_t* bytes, std::size_t count) const;

  // What the __global__ function takes: the size of each parameter.
  const std::vector<std::size_t>& parameter_bytes() const&;
  std::vector<std::size_t> parameter_bytes() && { return std::as_const(*this).parameter_bytes(); }

  // CUDA's own handle, a CUfunction, for tools and comparisons.
  void* cuda_function() const;

  // For the library itself.
  struct State;
  explicit Kernel(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const& { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace cubinery
