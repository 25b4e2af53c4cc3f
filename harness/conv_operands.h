// Operands of one shape of a convolution on a device, in several sets, so that every launch finds a
// cold L2: what tuning and the benchmarks time, and tests launch.
//
//   ConvOperands operands = ConvOperands::create(device, problem, {.form = {.lengths = {512, 7}}});
//   conv.launch(stream, operands.args(set));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "harness/conv_tensors.h"
#include "tuner/measure/device_memory.h"

namespace cubinery {

class ConvOperands {
 public:
  struct Options {
    // `channels` may be 0 with split_qkv, `columns` always, and `slots` is chosen: sequences of a
    // pool have slots of their own, in random order.  Flags are drawn, and so are accepted counts.
    ConvForm form{};
    std::uint64_t seed = 1730;
    float scale = 1;
    std::int64_t l2_bytes = 0;  // of the device
    int sets = 0;               // 0: as rotation() (gdn_operands.h) says
  };
  // is_out_of_memory() of the error where memory is short.
  static Result<ConvOperands> create(const std::shared_ptr<const Device>& device,
                                     const gdn::ConvProblem& problem, Options options);

  const gdn::ConvProblem& problem() const { return problem_; }
  const ConvForm& form() const { return options_.form; }
  gdn::ConvSize size() const;
  std::int64_t bytes() const { return least_bytes(problem_, options_.form); }
  int sets() const { return options_.sets; }
  // Requires of all: 0 <= set < sets().
  gdn::ConvArgs args(int set) const;
  // Bytes of a tensor of a set (of the whole pool: the sets share it), from `offset` on.
  Status download(ConvTensor tensor, int set, std::size_t offset, std::span<std::byte> to) const;
  // The slots of the pool that the set's sequences have, in the order of state_indices and then of
  // state_out_indices; dense: their rows.
  const std::vector<std::int64_t>& slots(int set) const {
    return slots_[static_cast<std::size_t>(set)];
  }

 private:
  // The same tensor of all sets.
  struct Column {
    DeviceMemory memory;
    std::size_t stride = 0;  // in bytes, from set to set; 0: the sets share it
  };

  ConvOperands(const gdn::ConvProblem& problem, Options options);
  Status allocate(const std::shared_ptr<const Device>& device);
  Status fill(const ConvTensorInfo& info);
  std::vector<std::int64_t> integers(const ConvTensorInfo& info, int set) const;
  const Column& column(ConvTensor tensor) const {
    return columns_[static_cast<std::size_t>(tensor)];
  }

  gdn::ConvProblem problem_;
  Options options_;
  gdn::ConvArgs tensors_;        // of a set, without data
  std::vector<Column> columns_;  // as conv_tensors()
  std::vector<std::vector<std::int64_t>> slots_;
};

}  // namespace cubinery
