// Operands of one shape of a Gated DeltaNet operator on a device, in several sets, so that every
// launch finds a cold L2: what tuning and the benchmarks time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "harness/gdn_data.h"
#include "harness/gdn_tensors.h"
#include "tuner/measure/device_memory.h"

namespace cubinery {

// Sets of operands that launches rotate over: more than four times the L2 in all (of the largest
// device that we measure on, if that is larger), and at least three.
int rotation(std::size_t bytes_per_set, std::int64_t l2_bytes);

// Random rows and gates, of which tensors are made by repetition: that saves time of the host.  A
// prime number of them, so that the rows that one head sees are not the same few.
class GdnPatterns {
 public:
  static constexpr std::int64_t kRows = 4099;

  GdnPatterns(const GdnProblem& problem, const DataOptions& options);

  // As in the tensor's memory: kRows rows, of all heads where each has a number of its own; some of
  // all channels; vectors of heads, and what channels have, whole.  Empty where the problem has no
  // such tensor, and of what is not drawn.
  const std::vector<std::byte>& of(GdnTensor tensor) const {
    return patterns_[static_cast<std::size_t>(tensor)];
  }
  // Of each head: of the gates as they are given, summed up.
  const std::vector<double>& decay() const { return decay_; }

 private:
  std::array<std::vector<std::byte>, std::size(kTensors)> patterns_;
  std::vector<double> decay_;
};

class GdnOperands {
 public:
  struct Options {
    std::vector<std::int64_t> lengths{};  // of the sequences; dense: all the same
    // qwen: of the first 4, 8, 16, 32 and 64 heads a quarter never decays, and of the first 2 one.
    // Parts of heads that all decay need no states of others: what is fastest for them is not
    // what is fastest for most.
    DataOptions data{.seed = 1730};
    std::optional<float> scale{};
    std::optional<DType> parents{};   // sequences are random trees, by parents of this dtype
    std::size_t workspace_bytes = 0;  // of each set
    std::int64_t l2_bytes = 0;        // of the device
    // New states go to a tensor of their own where the problem allows it.
    bool separate_out = false;
  };
  // is_out_of_memory() of the error where memory is short.
  static Result<GdnOperands> create(const std::shared_ptr<const Device>& device,
                                    const GdnProblem& problem, Options options);

  const GdnProblem& problem() const { return problem_; }
  const Options& options() const { return options_; }
  const GdnPatterns& patterns() const { return patterns_; }
  gdn::PrefillSize size() const;
  std::int64_t bytes() const { return least_bytes(problem_, extent_); }
  int sets() const { return sets_; }
  // Requires of all: 0 <= set < sets().
  GdnArgs args(int set) const;
  gdn::Workspace workspace(int set) const;
  // Bytes of a tensor of a set (of the whole pool: the sets share it), from `offset` on.
  Status download(GdnTensor tensor, int set, std::size_t offset, std::span<std::byte> to) const;
  // The slots of the pool that the set's sequences have; dense: their rows.
  const std::vector<std::int64_t>& slots(int set) const { return slots_[idx(set)]; }

 private:
  // The same tensor of all sets.
  struct Column {
    DeviceMemory memory;
    std::size_t stride = 0;  // in bytes, from set to set; 0: the sets share it
  };

  GdnOperands(const GdnProblem& problem, Options options);
  Status allocate(const std::shared_ptr<const Device>& device);
  Status fill() const;
  Status fill_bounds() const;
  Status fill_indices();
  Status fill_parents() const;
  const Column& column(GdnTensor tensor) const;

  GdnProblem problem_;
  Options options_;
  GdnExtent extent_;
  GdnPatterns patterns_;
  GdnArgs tensors_;  // of a set, without data
  int sets_ = 0;
  std::vector<Column> columns_;  // as kTensors
  Column workspace_;
  std::vector<std::vector<std::int64_t>> slots_;
};

}  // namespace cubinery
