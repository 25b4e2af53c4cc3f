// Operands of one shape of an operator on a device, in several sets, so that every launch finds a
// cold L2: what tuning and the benchmarks time, and tests launch.
//
//   ConvOperands operands = ConvOperands::create(device, problem, {.lengths = {512, 7}}).value();
//   conv.launch(stream, operands.args(set));
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "harness/data.h"
#include "harness/tensors.h"
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
  const std::vector<std::byte>& of(TensorId tensor) const { return patterns_[index_of(tensor)]; }
  // Of each head: of the gates as they are given, summed up.
  const std::vector<double>& decay() const { return decay_; }

 private:
  std::array<std::vector<std::byte>, gdn::kTensorCount> patterns_;
  std::vector<double> decay_;
};

// Of a convolution by itself: numbers, one for each element.
class ConvPatterns {
 public:
  ConvPatterns(const gdn::ConvProblem& problem, const DataOptions& options)
      : problem_(problem), seed_(options.seed) {}

  // As many as `tensor` has elements, or fewer.
  std::vector<std::byte> of(TensorId id, const Tensor& tensor) const;

 private:
  gdn::ConvProblem problem_;
  std::uint64_t seed_;
};

struct OperandOptions {
  std::vector<std::int64_t> lengths{};  // of the sequences; dense: all the same
  std::int64_t channels = 0;            // of a convolution that does not split
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

template <class Problem>
class Operands {
 public:
  static constexpr bool kIsConv = std::is_same_v<Problem, gdn::ConvProblem>;
  using Args = ArgsOf<Problem>;
  using Options = OperandOptions;
  using Patterns = std::conditional_t<kIsConv, ConvPatterns, GdnPatterns>;
  using Size = std::conditional_t<kIsConv, gdn::ConvSize, gdn::PrefillSize>;

  // is_out_of_memory() of the error where memory is short.  Sequences of a pool have slots of their
  // own, in random order; accepted counts are drawn.
  static Result<Operands> create(const std::shared_ptr<const Device>& device,
                                 const Problem& problem, Options options);

  const Problem& problem() const { return problem_; }
  const Options& options() const { return options_; }
  const Patterns& patterns() const { return patterns_; }
  Size size() const;
  std::int64_t bytes() const { return least_bytes(problem_, extent_); }
  int sets() const { return sets_; }
  // Requires of all: 0 <= set < sets().
  Args args(int set) const;
  gdn::Workspace workspace(int set) const;
  // Bytes of a tensor of a set (of the whole pool: the sets share it), from `offset` on.
  Status download(TensorId tensor, int set, std::size_t offset, std::span<std::byte> to) const;
  // The slots of the pool that the set's sequences have, in the order of state_indices and then of
  // state_out_indices; dense: their rows.
  const std::vector<std::int64_t>& slots(int set) const { return slots_[idx(set)]; }

 private:
  // The same tensor of all sets.
  struct Column {
    DeviceMemory memory;
    std::size_t stride = 0;  // in bytes, from set to set; 0: the sets share it
  };

  Operands(const Problem& problem, Options options);
  void draw_slots(std::int64_t each);
  Status allocate(const std::shared_ptr<const Device>& device);
  Status fill(const TensorInfo& info) const;
  std::vector<std::int64_t> integers(const TensorInfo& info, int set) const;
  std::vector<std::int64_t> bounds(TensorId id) const;
  const Column& column(TensorId tensor) const { return columns_[index_of(tensor)]; }

  Problem problem_;
  Options options_;
  Extent extent_;
  Patterns patterns_;
  TensorSet tensors_;  // of a set, without data
  int sets_ = 0;
  std::array<Column, gdn::kTensorCount> columns_;
  Column workspace_;
  std::vector<std::vector<std::int64_t>> slots_;
};

using GdnOperands = Operands<GdnProblem>;
using ConvOperands = Operands<gdn::ConvProblem>;

}  // namespace cubinery
