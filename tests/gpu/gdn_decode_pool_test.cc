// GDN decode and where its states are: pools, indices, padding, gaps, 64-bit offsets.
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/gpu/gpu_test.h"

namespace cubinery::test {
namespace {

using gdn::DecodeProblem;
using gdn::Padding;
using gdn::PadIndex;
using gdn::StateLayout;
using gdn::StateLocation;

DecodeProblem pool_problem() {
  DecodeProblem problem = small_problem();
  problem.state_location = StateLocation::kPool;
  return problem;
}

TEST_CASE("GdnDecodePool.ReadsAndWritesOneSlot", "[gpu]") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      for (const DType state_dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        DecodeProblem problem = pool_problem();
        problem.index_dtype = index_dtype;
        problem.state_dtype = state_dtype;
        problem.state_layout = layout;
        run_case(problem, 3);
        run_case(problem, 130);
      }
    }
  }
}

TEST_CASE("GdnDecodePool.WritesOtherSlotsThanItReads", "[gpu]") {
  for (const DType index_dtype : {DType::kI32, DType::kI64}) {
    DecodeProblem problem = pool_problem();
    problem.index_dtype = index_dtype;
    CaseOptions options;
    options.write_indices = true;
    run_case(problem, 5, options);
    run_case(problem, 130, options);
  }
}

TEST_CASE("GdnDecodePool.SeveralRequestsReadOneSlot", "[gpu]") {
  CaseOptions options;
  options.slots = 8;
  options.read = {2, 2, 2, 5};
  options.write = {1, 3, 4, 5};
  run_case(pool_problem(), 4, options);
}

TEST_CASE("GdnDecodePool.WritesAnotherTensor", "[gpu]") {
  CaseOptions options;
  options.separate_out = true;
  options.out_slot_gap = 64;
  run_case(small_problem(), 5, options);
  run_case(pool_problem(), 5, options);
  options.write_indices = true;
  run_case(pool_problem(), 5, options);
  DecodeProblem fresh = pool_problem();
  fresh.has_initial_state = false;
  run_case(fresh, 5, options);
}

TEST_CASE("GdnDecodePool.PoolWithoutInitialStateOrStore", "[gpu]") {
  DecodeProblem fresh = pool_problem();
  fresh.has_initial_state = false;
  run_case(fresh, 5);
  DecodeProblem read_only = pool_problem();
  read_only.store_state = false;
  run_case(read_only, 5);
}

TEST_CASE("GdnDecodePool.LeavesGapsAlone", "[gpu]") {
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    for (const StateLocation location : {StateLocation::kDense, StateLocation::kPool}) {
      for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
        DecodeProblem problem = small_problem();
        problem.state_dtype = state_dtype;
        problem.state_location = location;
        problem.state_layout = layout;
        CaseOptions options;
        options.slot_gap = 24;  // whole 16-byte units, but no power of two
        run_case(problem, 5, options);
        options.head_gap = 8;
        run_case(problem, 5, options);
        run_case(problem, 130, options);
      }
    }
  }
}

// The same batch under every policy.  -5 is padding where negative indices are, else no slot; 0
// likewise is padding or a slot; 16 and up are no slots; 2^32 + 3 must not be taken for 3.
TEST_CASE("GdnDecodePool.EveryPaddingPolicy", "[gpu]") {
  for (const Padding padding :
       {Padding::kNone, Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const PadIndex pad_index : {PadIndex::kNegative, PadIndex::kZero}) {
      for (const DType index_dtype : {DType::kI32, DType::kI64}) {
        DecodeProblem problem = pool_problem();
        problem.padding = padding;
        problem.pad_index = pad_index;
        problem.index_dtype = index_dtype;
        const std::int64_t huge = index_dtype == DType::kI64
                                      ? (std::int64_t{1} << 32) + 3
                                      : std::numeric_limits<std::int32_t>::max();
        CaseOptions options;
        options.slots = 16;
        options.scratch_slot = padding == Padding::kScratch ? 15 : 0;
        options.read = {5, -1, 7, 0, huge, 9, 16, 2, -5};
        run_case(problem, 9, options);
        // One padding row only: on a scratch slot its values are as certain as any.
        options.read = {5, pad_index == PadIndex::kNegative ? -1 : 0, 7};
        run_case(problem, 3, options);
      }
    }
  }
}

TEST_CASE("GdnDecodePool.AllRowsArePadding", "[gpu]") {
  for (const Padding padding : {Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const PadIndex pad_index : {PadIndex::kNegative, PadIndex::kZero}) {
      DecodeProblem problem = pool_problem();
      problem.padding = padding;
      problem.pad_index = pad_index;
      CaseOptions options;
      options.slots = 4;
      options.scratch_slot = padding == Padding::kScratch ? 2 : 0;
      options.read.assign(130, pad_index == PadIndex::kNegative ? -1 : 0);
      run_case(problem, 3, options);
      run_case(problem, 130, options);
    }
  }
}

TEST_CASE("GdnDecodePool.PaddingWithSeparateWriteIndices", "[gpu]") {
  for (const Padding padding : {Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    DecodeProblem problem = pool_problem();
    problem.padding = padding;
    CaseOptions options;
    options.slots = 16;
    options.scratch_slot = padding == Padding::kScratch ? 15 : 0;
    options.read = {5, -1, 7};
    options.write = {1, -1, 2};
    run_case(problem, 3, options);
    // Only the write index is padding: the output is computed, the new state dropped (or
    // scratched).
    options.write = {1, -1, -1};
    options.read = {5, 6, -1};
    if (padding != Padding::kScratch) run_case(problem, 3, options);
    options.read = {5, 6};
    options.write = {-1, 6};
    run_case(problem, 2, options);
  }
}

TEST_CASE("GdnDecodePool.WriteIndexOutsideThePool", "[gpu]") {
  CaseOptions options;
  options.slots = 8;
  options.read = {1, 2, 3};
  options.write = {1, 8, -1};
  run_case(pool_problem(), 3, options);
}

// Bytes of one slot of a contiguous pool.
std::size_t slot_bytes(const DecodeProblem& problem) {
  return static_cast<std::size_t>(problem.heads() * problem.key_dim * problem.value_dim *
                                  size_of(problem.state_dtype));
}

// Slots whose element and byte offsets need more than 32 bits must give what low slots give, bit
// for bit.
void run_far_pool(const DecodeProblem& problem, std::int64_t slots) {
  const std::size_t slot = slot_bytes(problem);
  const std::size_t pool = slot * static_cast<std::size_t>(slots);
  if (gpu().free_bytes() < pool + (std::size_t{2} << 30)) {
    return skip_test("not enough device memory for a pool of " + std::to_string(pool >> 30) +
                     " GiB");
  }
  CaseOptions options;
  options.slots = 16;
  options.read = {1, 5, 9, 14};
  options.seed = seed();
  const DecodeCase near(gpu(), problem, 4, options);
  const gdn::Decode decode = prepare(problem);
  const Results expected = run(near, decode);

  const DeviceBuffer far(gpu(), pool);  // all ones
  const DeviceBuffer indices(gpu(), 4 * sizeof(std::int64_t));
  std::vector<std::int64_t> far_slots;
  for (const std::int64_t read : options.read) {
    const std::int64_t far_slot = slots - 1 - read;
    far_slots.push_back(far_slot);
    far.upload(
        std::span(near.state().storage->bytes).subspan(static_cast<std::size_t>(read) * slot, slot),
        static_cast<std::size_t>(far_slot) * slot);
  }
  indices.upload(std::as_bytes(std::span(far_slots)));
  gdn::DecodeArgs args = near.args();
  args.state.data = far.data();
  args.state.shape[0] = slots;
  args.state_indices = Tensor::contiguous(indices.data(), DType::kI64, {4});
  const Results results = run(near, decode, args);
  CHECK(results.o == expected.o);
  CHECK(results.state == near.state().storage->bytes);
  for (std::size_t n = 0; n < far_slots.size(); ++n) {
    const std::size_t offset = static_cast<std::size_t>(far_slots[n]) * slot;
    const std::size_t read = static_cast<std::size_t>(options.read[n]) * slot;
    INFO("pool of " << slots << " slots, slot " << far_slots[n] << ", problem "
                    << problem.to_json());
    CHECK(std::memcmp(far.download(offset, slot).data(), expected.state.data() + read, slot) == 0);
    // Where the slot would be if an offset in elements or bytes lost its upper bits.
    const auto size = static_cast<std::size_t>(size_of(problem.state_dtype));
    for (const std::size_t wrap : {std::size_t{1} << 31, std::size_t{1} << 32,
                                   (std::size_t{1} << 31) * size, (std::size_t{1} << 32) * size}) {
      if (offset < wrap) continue;
      const std::vector<std::byte> there = far.download(offset % wrap, slot);
      CHECK(there == std::vector<std::byte>(slot, std::byte{DeviceBuffer::kPoison}));
    }
  }
  CHECK(far.guards_intact());
}

TEST_CASE("GdnDecodePool.SlotsBeyond32BitOffsets", "[gpu][big]") {
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
      DecodeProblem problem;  // 32 heads of 128 x 128: 2^19 elements per slot
      problem.state_location = StateLocation::kPool;
      problem.index_dtype = DType::kI64;
      problem.state_dtype = state_dtype;
      problem.state_layout = layout;
      // Past 2^32 elements where the device has the memory, else past 4 GiB.
      const std::size_t wanted =
          (std::size_t{8200} << 19) * static_cast<std::size_t>(size_of(state_dtype));
      const bool roomy = gpu().free_bytes() > wanted + (std::size_t{2} << 30);
      run_far_pool(problem, roomy ? 8200 : state_dtype == DType::kF32 ? 2560 : 5120);
    }
  }
}

}  // namespace
}  // namespace cubinery::test
