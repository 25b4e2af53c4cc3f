// Pools whose element and byte offsets need more than 32 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tests/gpu/cases.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test {

// Slots of a small pool, which expect_same_far_away() puts at the end of a large one.
inline CaseOptions near_options() {
  CaseOptions options{.seed = seed()};
  options.slots = 16;
  options.read = {1, 5, 9, 14};
  return options;
}

// Bytes of one slot of a contiguous pool.
template <class Problem>
std::size_t slot_bytes(const Problem& problem) {
  return static_cast<std::size_t>(problem.heads.count() * problem.key_dim * problem.value_dim *
                                  size_of(problem.states.dtype));
}

// Slots that pass 2^32 elements where the device has the memory, else 4 GiB; none when it has not
// even that.
template <class Problem>
std::optional<std::int64_t> far_slots(const Problem& problem) {
  const std::size_t slot = slot_bytes(problem);
  const auto size = static_cast<std::size_t>(size_of(problem.states.dtype));
  const std::size_t spare = std::size_t{2} << 30;
  for (const std::size_t bytes :
       {((std::size_t{1} << 32) + (std::size_t{1} << 22)) * size, (std::size_t{5} << 30)}) {
    if (gpu().free_bytes() > bytes + spare) return static_cast<std::int64_t>(bytes / slot);
  }
  return std::nullopt;
}

// Nothing may be where slot `offset` would be if an offset in elements or bytes lost its upper
// bits.
template <class Problem>
void expect_no_wrapped_slot(const Problem& problem, const DeviceBuffer& pool, std::size_t offset) {
  const std::size_t slot = slot_bytes(problem);
  const auto size = static_cast<std::size_t>(size_of(problem.states.dtype));
  for (const std::size_t wrap : {std::size_t{1} << 31, std::size_t{1} << 32,
                                 (std::size_t{1} << 31) * size, (std::size_t{1} << 32) * size}) {
    if (offset < wrap) continue;
    const std::vector<std::byte> there = pool.download(offset % wrap, slot);
    CHECK(there == std::vector<std::byte>(slot, kPoison));
  }
}

template <class Args>
Tensor& pool_of(Args& args) {
  if constexpr (requires { args.layer; }) {
    return args.layer.state;
  } else {
    return args.state;
  }
}
template <class Args>
Tensor& indices_of(Args& args) {
  return args.state_indices;
}

// The far slots must give what the near ones give, bit for bit.  `near` was made with
// near_options() and i64 indices.
template <class Case>
void expect_same_far_away(const Case& near, const typename Case::Operator& prepared,
                          std::int64_t slots) {
  const auto& problem = near.problem();
  const std::size_t slot = slot_bytes(problem);
  const GdnMemory expected = run(near, prepared);
  const auto of = [&](const GdnMemory& memory, TensorId tensor) {
    return near.bytes(memory, tensor);
  };
  const auto near_pool = of(near.memory(), TensorId::kState);
  const DeviceBuffer far(gpu(), slot * static_cast<std::size_t>(slots));  // all ones
  const DeviceBuffer indices(gpu(), 4 * sizeof(std::int64_t));
  std::vector<std::int64_t> far_slots;
  for (const std::int64_t read : near_options().read) {
    far_slots.push_back(slots - 1 - read);
    far.upload(near_pool.subspan(static_cast<std::size_t>(read) * slot, slot),
               static_cast<std::size_t>(far_slots.back()) * slot);
  }
  indices.upload(std::as_bytes(std::span(far_slots)));
  auto args = near.args();
  Tensor& pool = pool_of(args);
  pool.data = far.data();
  pool.shape[0] = slots;
  indices_of(args) = Tensor::contiguous(indices.data(), DType::kI64, {4});
  const GdnMemory results = run(near, prepared, args);
  CHECK(same_bytes(of(results, TensorId::kO), of(expected, TensorId::kO)));
  CHECK(same_bytes(of(results, TensorId::kState), near_pool));
  for (std::size_t n = 0; n < far_slots.size(); ++n) {
    const std::size_t offset = static_cast<std::size_t>(far_slots[n]) * slot;
    const std::size_t read = static_cast<std::size_t>(near_options().read[n]) * slot;
    INFO("pool of " << slots << " slots, slot " << far_slots[n] << ", problem "
                    << problem.to_json());
    CHECK(
        same_bytes(far.download(offset, slot), of(expected, TensorId::kState).subspan(read, slot)));
    expect_no_wrapped_slot(problem, far, offset);
  }
  CHECK(far.guards_intact());
}

// `problem`, of 32 heads of 128 x 128, with every state layout, in each size of the dtypes.
// `make_near` makes a case of four requests from a problem and near_options().
template <class Problem, class MakeNear>
void expect_far_pools_work(MakeNear make_near, std::span<const DType> dtypes = kFloats,
                           Problem problem = {}) {
  for (const DType state_dtype : dtypes) {
    if (state_dtype == DType::kF16 || state_dtype == DType::kF8E5M2) continue;
    for (const gdn::StateLayout layout : kLayouts) {
      problem.states.location = gdn::StateLocation::kPool;
      problem.states.index_dtype = DType::kI64;
      problem.states.dtype = state_dtype;
      problem.states.layout = layout;
      const std::optional<std::int64_t> slots = far_slots(problem);
      if (!slots) return skip_test("not enough device memory for a pool beyond 4 GiB");
      expect_same_far_away(make_near(problem), prepare(problem), *slots);
    }
  }
}

}  // namespace cubinery::test
