// NcclRanks beside a libnccl that does as the test says.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cubinery/ranks.h"
#include "tests/catch.h"
#include "tests/data/fake_nccl.h"
#include "tests/runtime/fake_operator.h"

namespace cubinery::nccl_ranks_test {
namespace {

using test::FakeDriver;
using test::FakeNccl;
using test::TempDir;

constexpr std::chrono::milliseconds kSoon{20};
constexpr int kInProgress = 7, kRemoteError = 6;

class Bench {
 public:
  const FakeDriver driver{CUBINERY_FAKE_DRIVER};
  const FakeNccl nccl{CUBINERY_FAKE_NCCL};

  Result<std::shared_ptr<NcclRanks>> create(void* comm) const {
    return NcclRanks::create(context_, comm, kSoon);
  }
  std::shared_ptr<NcclRanks> ranks() const { return create(nccl.comm()).value(); }
  Status send(int target = 1) const { return ranks()->send(nullptr, nullptr, 64, target); }
  Status agreed(bool* same) const {
    const Result<bool> agreed = ranks()->agree(42);
    if (agreed) *same = *agreed;
    return agreed ? Status() : agreed.error().clone();
  }

 private:
  TempDir dir_;
  Context context_ = test::fake_context(dir_);
};

std::string refusal(const Status& status, Code code) {
  CHECK(status.code() == code);
  return std::string(status.message());
}

TEST_CASE("NcclIsWhatTheProcessHas", "[cpu]") {
  const FakeDriver driver(CUBINERY_FAKE_DRIVER);
  const TempDir dir;
  const Context context = test::fake_context(dir);
  int comm = 0;
  CHECK(refusal(NcclRanks::create(context, &comm).error(), Code::kUnsupported)
            .starts_with("NCCL: the process has not loaded libnccl.so.2"));
}

TEST_CASE("NcclRanksAreThoseOfTheCommunicator", "[cpu]") {
  const Bench bench;
  bench.nccl->rank = 1;
  bench.nccl->count = 3;
  CHECK((bench.ranks()->rank() == 1 && bench.ranks()->count() == 3));
  CHECK(refusal(bench.create(nullptr).error(), Code::kInvalidArgument) ==
        "NCCL: comm is null; accepted: an ncclComm_t");
  CHECK(bench.send(2).ok());
  CHECK(bench.ranks()->receive(nullptr, nullptr, 128, 0).ok());
  CHECK(bench.nccl->calls == std::vector<std::string>{"send 2 64", "receive 0 128"});
  for (const int peer : {-1, 1, 3}) {
    CHECK(refusal(bench.send(peer), Code::kInvalidArgument) ==
          "NCCL: target = " + std::to_string(peer) +
              "; accepted: another rank of 0 to 2, on rank 1");
  }
  bench.nccl->device = 1;
  CHECK(refusal(bench.create(bench.nccl.comm()).error(), Code::kInvalidArgument) ==
        "NCCL: comm is of device 1; accepted: one of device 0, as the context");
}

TEST_CASE("NcclRanksAgree", "[cpu]") {
  const Bench bench;
  bool same = false;
  CHECK((bench.agreed(&same).ok() && same));
  for (const std::uint64_t other : {41u, 43u}) {
    bench.nccl->numbers = other;
    CHECK((bench.agreed(&same).ok() && !same));
  }
  CHECK(bench.driver->memory.empty());
}

// A communicator that does not block returns "in progress", and goes on by itself.
TEST_CASE("NcclRanksWaitUntilCallsAreEnqueued", "[cpu]") {
  const Bench bench;
  bench.nccl->result = kInProgress;
  bench.nccl->states = {kInProgress, kInProgress, 0};
  CHECK(bench.send().ok());
  CHECK(bench.nccl->states.empty());
  bool same = false;
  bench.nccl->states = {kInProgress, 0};
  CHECK((bench.agreed(&same).ok() && same));
  bench.nccl->states = {kInProgress, kRemoteError};
  CHECK(refusal(bench.send(), Code::kDriver) ==
        "NCCL: ncclSend on rank 0 of 2: remote process exited or there was a network error");
  bench.nccl->last_state = kInProgress;
  CHECK(refusal(bench.send(), Code::kDriver) ==
        "NCCL: ncclSend on rank 0 of 2: other ranks have not come in 20 ms");
}

TEST_CASE("ARankThatDoesNotComeEndsInAnError", "[cpu]") {
  const Bench bench;
  bench.driver->stream_runs = false;
  bool same = false;
  CHECK(refusal(bench.agreed(&same), Code::kDriver) ==
        "NCCL: ncclAllReduce on rank 0 of 2: other ranks have not come in 20 ms");
  // What a kernel may still write to stays.
  CHECK(bench.driver->memory.size() == 1);
  bench.nccl->last_state = kRemoteError;
  CHECK(refusal(bench.agreed(&same), Code::kDriver) ==
        "NCCL: an earlier call on rank 0 of 2: remote process exited or there was a network error");
  CHECK(refusal(bench.ranks()->check(), Code::kDriver).starts_with("NCCL: an earlier call"));
}

}  // namespace
}  // namespace cubinery::nccl_ranks_test
