// Ranks of an NCCL communicator.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <thread>

#include "cubinery/ranks.h"
#include "runtime/jit/context_state.h"
#include "runtime/jit/device.h"

namespace cubinery {
namespace internal {

// As nccl.h has them since NCCL 2.7.
using NcclComm = void*;
struct NcclFunctions {
  int (*send)(const void*, std::size_t, int type, int peer, NcclComm, CUstream);
  int (*receive)(void*, std::size_t, int type, int peer, NcclComm, CUstream);
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, NcclComm, CUstream);
  int (*async_error)(NcclComm, int*);
  int (*rank)(NcclComm, int*);
  int (*count)(NcclComm, int*);
  int (*device)(NcclComm, int*);
  const char* (*error_text)(int);
};

}  // namespace internal

namespace {

constexpr int kSuccess = 0, kInProgress = 7;  // ncclResult_t
constexpr int kUint8 = 1, kUint64 = 5;        // ncclDataType_t
constexpr int kMax = 2;                       // ncclRedOp_t
constexpr std::chrono::microseconds kPause{50};

using internal::NcclFunctions;

template <class Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Of the library that the process has loaded, whoever did.
Result<NcclFunctions> functions_of_process() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = RTLD_DEFAULT;  // linked into the program
  NcclFunctions f{};
  if (!find(library, "ncclSend", &f.send) || !find(library, "ncclRecv", &f.receive) ||
      !find(library, "ncclAllReduce", &f.all_reduce) ||
      !find(library, "ncclCommGetAsyncError", &f.async_error) ||
      !find(library, "ncclCommUserRank", &f.rank) || !find(library, "ncclCommCount", &f.count) ||
      !find(library, "ncclCommCuDevice", &f.device) ||
      !find(library, "ncclGetErrorString", &f.error_text)) {
    return Status(Code::kUnsupported,
                  "NCCL: the process has not loaded libnccl.so.2, version 2.7 or newer, whose "
                  "communicator is given");
  }
  return f;
}

// Some device memory, and a stream that waits for no other.
class Scratch {
 public:
  explicit Scratch(const Device& device) : driver_(device.driver()) {}
  ~Scratch() {
    if (data_ != 0) driver_.cuMemFree(data_);
    if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Status allocate(std::size_t bytes) {
    CUBINERY_RETURN_IF_ERROR(driver_.check(driver_.cuMemAlloc(&data_, bytes), "cuMemAlloc"));
    return driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                         "cuStreamCreate");
  }
  // Leaves both to a kernel that has not ended: freeing memory would wait for it.
  void abandon() {
    data_ = 0;
    stream_ = nullptr;
  }
  CUstream stream() const { return stream_; }
  CUdeviceptr get() const { return data_; }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver has addresses as numbers.
  void* data() const { return reinterpret_cast<void*>(data_); }

 private:
  const Driver& driver_;
  CUdeviceptr data_ = 0;
  CUstream stream_ = nullptr;
};

}  // namespace

class NcclRanks::State {
 public:
  std::shared_ptr<const Device> device;
  internal::NcclFunctions nccl{};
  internal::NcclComm comm = nullptr;
  int rank = 0;
  int count = 0;
  std::chrono::milliseconds timeout{};

  Status checked(int result, std::string_view what) const {
    if (result == kSuccess || result == kInProgress) return {};
    return Status(Code::kDriver, fmt::format("NCCL: {} on rank {} of {}: {}", what, rank, count,
                                             nccl.error_text(result)));
  }
  // What a call has returned.  A communicator that does not block goes on by itself; before it has,
  // nothing else may go on the stream.
  Status enqueued(int result, std::string_view what) const {
    if (result != kInProgress) return checked(result, what);
    return wait(what, [&] { return has_enqueued(what); });
  }
  Result<bool> has_enqueued(std::string_view what) const {
    int state = kSuccess;
    CUBINERY_RETURN_IF_ERROR(checked(nccl.async_error(comm, &state), "ncclCommGetAsyncError"));
    CUBINERY_RETURN_IF_ERROR(checked(state, what));
    return state != kInProgress;
  }
  // Whether what is on the stream has ended, if nothing has failed.
  Result<bool> has_run(CUstream stream) const {
    const Result<bool> enqueued = has_enqueued("an earlier call");
    if (!enqueued) return enqueued.error().clone();
    const CUresult result = device->driver().cuStreamQuery(stream);
    if (result == CUDA_ERROR_NOT_READY) return false;
    CUBINERY_RETURN_IF_ERROR(device->driver().check(result, "cuStreamQuery"));
    return true;
  }
  // Until has_ended() is true, or `timeout` is over.
  template <class HasEnded>
  Status wait(std::string_view what, HasEnded has_ended) const {
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      const Result<bool> ended = has_ended();
      if (!ended) return ended.error().clone();
      if (*ended) return {};
      if (std::chrono::steady_clock::now() - start >= timeout) {
        return Status(Code::kDriver,
                      fmt::format("NCCL: {} on rank {} of {}: other ranks have not come in {} ms",
                                  what, rank, count, timeout.count()));
      }
      std::this_thread::sleep_for(kPause);
    }
  }
  Status check_peer(int peer, std::string_view name) const {
    if (peer >= 0 && peer < count && peer != rank) return {};
    return Status(Code::kInvalidArgument,
                  fmt::format("NCCL: {} = {}; accepted: another rank of 0 to {}, on rank {}", name,
                              peer, count - 1, rank));
  }
};

NcclRanks::NcclRanks(std::unique_ptr<const State> state) : state_(std::move(state)) {}
NcclRanks::~NcclRanks() = default;

Result<std::shared_ptr<NcclRanks>> NcclRanks::create(const Context& context, void* comm,
                                                     std::chrono::milliseconds timeout) {
  auto state = std::make_unique<State>();
  state->device = context.state().device;
  if (state->device == nullptr) {
    return Status(Code::kUnsupported, "NCCL: the context has no device");
  }
  if (comm == nullptr) {
    return Status(Code::kInvalidArgument, "NCCL: comm is null; accepted: an ncclComm_t");
  }
  const Result<NcclFunctions> functions = functions_of_process();
  if (!functions) return functions.error().clone();
  state->nccl = *functions;
  state->comm = comm;
  state->timeout = timeout;
  int device = 0;
  CUBINERY_RETURN_IF_ERROR(
      state->checked(state->nccl.rank(comm, &state->rank), "ncclCommUserRank"));
  CUBINERY_RETURN_IF_ERROR(state->checked(state->nccl.count(comm, &state->count), "ncclCommCount"));
  CUBINERY_RETURN_IF_ERROR(state->checked(state->nccl.device(comm, &device), "ncclCommCuDevice"));
  if (device != state->device->ordinal()) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("NCCL: comm is of device {}; accepted: one of device {}, as the context",
                    device, state->device->ordinal()));
  }
  return std::make_shared<NcclRanks>(std::unique_ptr<const State>(std::move(state)));
}

int NcclRanks::rank() const { return state_->rank; }
int NcclRanks::count() const { return state_->count; }

Status NcclRanks::check() const {
  int failed = kSuccess;
  CUBINERY_RETURN_IF_ERROR(
      state_->checked(state_->nccl.async_error(state_->comm, &failed), "ncclCommGetAsyncError"));
  return state_->checked(failed, "an earlier call");
}

Status NcclRanks::receive(Stream stream, void* data, std::size_t bytes, int source) {
  CUBINERY_RETURN_IF_ERROR(state_->check_peer(source, "source"));
  const CurrentContext current(state_->device->driver(), state_->device->context());
  CUBINERY_RETURN_IF_ERROR(current.status().clone());
  return state_->enqueued(state_->nccl.receive(data, bytes, kUint8, source, state_->comm, stream),
                          "ncclRecv");
}

Status NcclRanks::send(Stream stream, const void* data, std::size_t bytes, int target) {
  CUBINERY_RETURN_IF_ERROR(state_->check_peer(target, "target"));
  const CurrentContext current(state_->device->driver(), state_->device->context());
  CUBINERY_RETURN_IF_ERROR(current.status().clone());
  return state_->enqueued(state_->nccl.send(data, bytes, kUint8, target, state_->comm, stream),
                          "ncclSend");
}

// The largest number is everybody's, and so is the largest complement.
Result<bool> NcclRanks::agree(std::uint64_t number) {
  const Driver& driver = state_->device->driver();
  const CurrentContext current(driver, state_->device->context());
  CUBINERY_RETURN_IF_ERROR(current.status().clone());
  std::array<std::uint64_t, 2> numbers{number, ~number};
  const std::array<std::uint64_t, 2> mine = numbers;
  Scratch scratch(*state_->device);
  CUBINERY_RETURN_IF_ERROR(scratch.allocate(sizeof(numbers)));
  CUBINERY_RETURN_IF_ERROR(driver.check(
      driver.cuMemcpyHtoD(scratch.get(), numbers.data(), sizeof(numbers)), "cuMemcpyHtoD"));
  Status reduced =
      state_->enqueued(state_->nccl.all_reduce(scratch.data(), scratch.data(), numbers.size(),
                                               kUint64, kMax, state_->comm, scratch.stream()),
                       "ncclAllReduce");
  if (reduced.ok()) {
    reduced = state_->wait("ncclAllReduce", [&] { return state_->has_run(scratch.stream()); });
  }
  if (!reduced.ok()) {
    scratch.abandon();
    return reduced;
  }
  CUBINERY_RETURN_IF_ERROR(driver.check(
      driver.cuMemcpyDtoH(numbers.data(), scratch.get(), sizeof(numbers)), "cuMemcpyDtoH"));
  return numbers == mine;
}

}  // namespace cubinery
