// The functions of NCCL that the library calls.
#include "tests/data/fake_nccl.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace {

cubinery::test::FakeNcclSettings settings;

int called(const char* what, int peer, std::size_t bytes) {
  settings.calls.push_back(std::string(what) + " " + std::to_string(peer) + " " +
                           std::to_string(bytes));
  return settings.result;
}

}  // namespace

extern "C" {

cubinery::test::FakeNcclSettings* fake_nccl_settings() { return &settings; }

int ncclSend(const void*, std::size_t count, int, int peer, void*, void*) {
  return called("send", peer, count);
}

int ncclRecv(void*, std::size_t count, int, int peer, void*, void*) {
  return called("receive", peer, count);
}

// Of two unsigned numbers of 64 bits the larger ones; the other rank has its number and that one's
// complement.
int ncclAllReduce(const void* mine, void* reduced, std::size_t, int, int, void*, void*) {
  const auto* from = static_cast<const std::uint64_t*>(mine);
  auto* to = static_cast<std::uint64_t*>(reduced);
  const std::uint64_t other = settings.numbers.value_or(from[0]);
  to[0] = std::max(from[0], other);
  to[1] = std::max(from[1], ~other);
  return settings.result;
}

int ncclCommGetAsyncError(void*, int* state) {
  *state = settings.last_state;
  if (!settings.states.empty()) {
    *state = settings.states.front();
    settings.states.erase(settings.states.begin());
  }
  return 0;
}

int ncclCommUserRank(void*, int* rank) {
  *rank = settings.rank;
  return 0;
}

int ncclCommCount(void*, int* count) {
  *count = settings.count;
  return 0;
}

int ncclCommCuDevice(void*, int* device) {
  *device = settings.device;
  return 0;
}

const char* ncclGetErrorString(int result) {
  return result == 6 ? "remote process exited or there was a network error" : "some error";
}

}  // extern "C"
