// Prefills whose sequences are spread over several GPUs: "Context parallelism" in
// cubinery/gdn_prefill.h with the exchange between its steps.
//
//   // A process with one GPU each; the last of these ranks.
//   std::shared_ptr<Ranks> ranks = NcclRanks::create(context, comm).value();
//   gdn::Prefill prefill = context.prepare(problem).value();
//   gdn::RankPrefill on_ranks = gdn::RankPrefill::create(prefill, ranks).value();
//   Status status = on_ranks.launch(stream, args, workspace, {.source = rank - 1});
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "cubinery/context.h"
#include "cubinery/gdn_prefill.h"
#include "cubinery/kernel.h"
#include "cubinery/status.h"

namespace cubinery {

// How ranks hand data on.  NcclRanks, or the caller's own.  What it returns is what launches
// return.
class Ranks {
 public:
  virtual ~Ranks() = default;
  // `bytes` of device memory from another rank, or to one, behind what is on the stream.  Do not
  // wait for it.
  virtual Status receive(Stream stream, void* data, std::size_t bytes, int source) = 0;
  virtual Status send(Stream stream, const void* data, std::size_t bytes, int target) = 0;
  // Whether all ranks have given the same number.  Waits for all.
  virtual Result<bool> agree(std::uint64_t number) = 0;
};

// Those of an NCCL communicator, which is the caller's and must outlive it.  NCCL is neither linked
// nor loaded: it is the library that the process has, libnccl.so.2, PyTorch's among them.  As NCCL
// wants it, one thread at a time uses a communicator.
class NcclRanks final : public Ranks {
 public:
  // comm: an ncclComm_t of the context's device, which may block or not.  timeout: how long agree()
  // waits for other ranks, and a communicator that does not block for what it enqueues; then they
  // return kDriver, and the communicator is to be aborted.  (One that blocks may wait inside of
  // NCCL, when it connects ranks, for as long as NCCL likes.)
  // kUnsupported: the process has no NCCL.  kInvalidArgument: null, or of another device.  kDriver:
  // NCCL refuses.
  static Result<std::shared_ptr<NcclRanks>> create(
      const Context& context, void* comm,
      std::chrono::milliseconds timeout = std::chrono::minutes(10));

  int rank() const;
  int count() const;
  // What has failed since then, as a rank that has died (ncclCommGetAsyncError()): kDriver. Kernels
  // that wait for such a rank end when the caller aborts the communicator (ncclCommAbort()).
  Status check() const;

  Status receive(Stream stream, void* data, std::size_t bytes, int source) override;
  Status send(Stream stream, const void* data, std::size_t bytes, int target) override;
  Result<bool> agree(std::uint64_t number) override;

  class State;  // for the library itself
  explicit NcclRanks(std::unique_ptr<const State> state);
  ~NcclRanks() override;

 private:
  std::unique_ptr<const State> state_;
};

namespace gdn {

// With which ranks a launch exchanges states.
struct RankNeighbours {
  // From which the first sequence goes on; absent: it begins here.
  std::optional<int> source{};
  // On which the last sequence goes on; absent: it ends here.
  std::optional<int> target{};
};

// A prefill on ranks.  Copies share it; safe from several threads as far as its ranks are.
class RankPrefill {
 public:
  // All ranks call it.  kInvalidArgument: the problem has no context_parallel, its states are in a
  // pool, or another rank has another problem.  Else what the ranks return.
  static Result<RankPrefill> create(Prefill prefill, std::shared_ptr<Ranks> ranks);

  const Prefill& prefill() const& { return prefill_; }
  const PrefillProblem& problem() const& { return prefill_.problem(); }

  // Enqueues the steps of Prefill::launch() and the exchange; does not wait.  `args`: as there,
  // without `step` and `continues`.  The first state is written where it comes from a rank, so
  // that must be a row without gaps, as the last new state where it goes to one.
  // Errors: as Prefill::launch(), and what the ranks return.
  Status launch(Stream stream, const PrefillArgs& args, const Workspace& workspace,
                const RankNeighbours& neighbours) const;

 private:
  RankPrefill(Prefill prefill, std::shared_ptr<Ranks> ranks)
      : prefill_(std::move(prefill)), ranks_(std::move(ranks)) {}

  Prefill prefill_;
  std::shared_ptr<Ranks> ranks_;
};

}  // namespace gdn
}  // namespace cubinery
