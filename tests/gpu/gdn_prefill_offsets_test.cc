// GDN prefill that keeps states at offsets which the launch names.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/cases.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::PrefillProblem;
using gdn::StateLocation;

PrefillProblem at_offsets(PrefillProblem problem, int every = 16) {
  problem.checkpoints = Checkpoints::kAt;
  problem.checkpoint_every = every;
  return problem;
}

PrefillProblem in_pool(PrefillProblem problem) {
  problem.states.location = StateLocation::kPool;
  return problem;
}

const CaseShape kMixed{.lengths = {0, 127, 128, 129, 64, 1, 300, 16}, .lead = 7, .tail = 5};

TEST_CASE("GdnPrefillOffsets.DenseAndPacked", "[gpu][prefill][sanitize]") {
  for (const int every : {16, 48, 64}) {
    for (const std::int64_t count : {1, 2, 5}) {
      run_case(at_offsets(small_prefill(), every), uniform(3, 300), {.offsets = count});
      run_case(at_offsets(small_varlen(), every), kMixed, {.offsets = count});
    }
  }
  run_case(at_offsets(small_prefill()), uniform(3, 0));
  run_case(at_offsets(small_varlen()), {.lengths = {0, 0}});
}

// Rows of offsets and slots with gaps, and strides of the launch.
TEST_CASE("GdnPrefillOffsets.AsTheyLie", "[gpu][prefill]") {
  for (const std::int64_t times : {1, 3}) {
    const CaseOptions options{.placement = Placement::kUnaligned,
                              .head_gap = 8,
                              .slot_gap = 16,
                              .checkpoint_every = 32 * times};
    run_case(at_offsets(small_prefill(), 32), uniform(2, 200), options);
    run_case(at_offsets(small_varlen(), 32), kMixed, options);
  }
}

TEST_CASE("GdnPrefillOffsets.EveryStateForm", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const gdn::StateLayout layout : {gdn::StateLayout::kVK, gdn::StateLayout::kKV}) {
      for (const DType index_dtype : {DType::kI32, DType::kI64}) {
        for (const bool pool : {false, true}) {
          for (const bool has_initial : {false, true}) {
            PrefillProblem problem = at_offsets(small_prefill());
            if (pool) problem = in_pool(problem);
            problem.value_dim = 96;
            problem.states.dtype = dtype;
            problem.states.layout = layout;
            problem.states.index_dtype = index_dtype;
            problem.states.has_initial = has_initial;
            problem.states.store = !has_initial || dtype == DType::kF32;
            problems.push_back(problem);
          }
        }
      }
    }
  }
  // States that are kept nowhere else.
  problems.push_back(at_offsets(small_prefill()));
  problems.back().states.has_initial = problems.back().states.store = false;
  run_cases(problems, uniform(2, 200));
}

// Slots of the very pool that the launch reads and writes.
TEST_CASE("GdnPrefillOffsets.InThePoolOfStates", "[gpu][prefill][sanitize]") {
  for (const bool varlen : {false, true}) {
    const PrefillProblem problem = at_offsets(in_pool(varlen ? small_varlen() : small_prefill()));
    const CaseShape shape = varlen ? kMixed : uniform(4, 150);
    for (const std::int64_t count : {1, 2}) {
      run_case(problem, shape, {.offsets = count, .checkpoints_in_pool = true});
      run_case(problem, shape,
               {.separate_out = true,
                .out_slot_gap = 64,
                .write_indices = true,
                .fresh_every = 3,
                .offsets = count,
                .checkpoints_in_pool = true});
    }
    for (const Padding& padding : every_padding(0)) {
      run_case(problem, shape, {.padding = padding, .padded = 2, .checkpoints_in_pool = true});
    }
  }
}

TEST_CASE("GdnPrefillOffsets.OfSegments", "[gpu][prefill][sanitize]") {
  for (const bool pool : {false, true}) {
    for (const int every : {16, 64, 160}) {
      PrefillProblem problem = at_offsets(small_varlen(), every);
      if (pool) problem = in_pool(problem);
      problem.segments = gdn::Segments::kAlways;
      for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
        run_case(problem, {.lengths = {700, 64, 0, 129}},
                 {.gates = gates, .offsets = 3, .checkpoints_in_pool = pool});
      }
    }
  }
}

// The heads of most models.
TEST_CASE("GdnPrefillOffsets.HeadsOf128", "[gpu][prefill]") {
  PrefillProblem problem = at_offsets(in_pool(small_varlen()), 32);
  problem.key_dim = problem.value_dim = 128;
  problem.inputs.use_qk_l2norm = true;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    problem.dtype = dtype;
    for (const std::int64_t count : {1, 3}) {
      run_case(problem, {.lengths = {640, 0, 1, 97, 32, 64}, .lead = 65, .tail = 3},
               {.offsets = count, .checkpoints_in_pool = count == 1});
    }
  }
}

// Offsets and slots of each sequence, one after the other.
struct Chosen {
  std::vector<std::int64_t> offsets, slots;
};

// Whether a head's matrix has the same bits in both.
bool same_matrix(const GdnCase& a, const GdnMemory& of_a, std::int64_t row_a, TensorId in_a,
                 const GdnCase& b, const GdnMemory& of_b, std::int64_t row_b, std::int64_t h) {
  const GdnCase::Place x = a.matrix_at(in_a, row_a, h);
  const GdnCase::Place y = b.matrix_at(TensorId::kCheckpoints, row_b, h);
  return std::memcmp(of_a[x.piece].data() + x.byte, of_b[y.piece].data() + y.byte,
                     a.matrix_bytes()) == 0;
}

// Each path's checkpoints at offsets have the bits of those that it keeps after every 32 tokens.
void expect_bits_of_after(const PrefillProblem& problem, const CaseShape& shape,
                          const CaseOptions& options) {
  PrefillProblem after = problem;
  after.checkpoints = Checkpoints::kAfter;
  const PrefillCase one(problem, shape, options);
  const PrefillCase all(after, shape,
                        {.seed = options.seed, .read = options.read, .slots = options.slots});
  std::vector<gdn::Prefill> paths = on_every_path(problem);
  const std::vector<gdn::Prefill> same = on_every_path(after);
  // It has them at offsets alone.
  std::erase_if(paths, [&](const gdn::Prefill& path) {
    const std::string configuration = path.choice(size_of(shape)).configuration;
    return configuration.starts_with("path=hopper_fused_segments;");
  });
  REQUIRE(paths.size() == same.size());
  const TensorId in = options.checkpoints_in_pool ? TensorId::kState : TensorId::kCheckpoints;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string configuration = paths[i].choice(size_of(shape)).configuration;
    INFO(configuration << ", problem " << problem.to_json() << ", seed " << seed());
    REQUIRE(configuration == same[i].choice(size_of(shape)).configuration);
    const GdnMemory kept = run(one, paths[i]), expected = run(all, same[i]);
    expect_good(one, kept, configuration);
    std::int64_t first = 0;
    for (std::int64_t n = 0; n < one.sequences(); ++n) {
      for (std::int64_t k = 0; k < options.offsets; ++k) {
        const auto at = idx(n * options.offsets + k);
        const std::int64_t offset = options.checkpoint_offsets[at];
        if (offset <= 0 || options.checkpoint_slots[at] < 0) continue;
        for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
          CHECK(same_matrix(one, kept, options.checkpoint_slots[at], in, all, expected,
                            first + offset / 32 - 1, h));
        }
      }
      first += one.length(n) / 32;
    }
  }
}

TEST_CASE("GdnPrefillOffsets.EveryPathHasTheBitsOfAfter", "[gpu][prefill][slow]") {
  for (const int dim : {64, 128}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const gdn::Segments segments : {gdn::Segments::kNever, gdn::Segments::kAlways}) {
        PrefillProblem problem = at_offsets(small_prefill(), 32);
        problem.key_dim = problem.value_dim = dim;
        problem.dtype = dtype;
        problem.segments = segments;
        expect_bits_of_after(problem, uniform(2, 500),
                             {.seed = seed(),
                              .offsets = 1,
                              .checkpoint_offsets = {480, 32},
                              .checkpoint_slots = {1, 0}});
        problem.varlen = true;
        problem = in_pool(problem);
        expect_bits_of_after(problem, {.lengths = {500, 0, 64, 321}},
                             {.seed = seed(),
                              .read = {1, 2, 3, 4},
                              .slots = 12,
                              .offsets = 2,
                              .checkpoint_offsets = {64, 480, 0, -3, 0, 64, 160, 320},
                              .checkpoint_slots = {11, 5, 6, 7, 8, 0, 9, 10},
                              .checkpoints_in_pool = true});
      }
    }
  }
}

// What only the device can see: the second of three sequences touches nothing, the others are as
// they should be.
void run_second_with(const PrefillProblem& problem, const Chosen& chosen, bool is_invalid,
                     const CaseOptions& options) {
  const CaseShape shape = uniform(3, 200);
  CaseOptions all = options;
  all.seed = seed();
  all.offsets = std::ssize(chosen.offsets);
  for (std::int64_t n = 0; n < 3; ++n) {
    for (std::int64_t k = 0; k < all.offsets; ++k) {
      const std::int64_t slot = 3 + n * all.offsets + k;
      all.checkpoint_offsets.push_back(n == 1 ? chosen.offsets[idx(k)] : 64 + 32 * k);
      all.checkpoint_slots.push_back(n == 1 ? chosen.slots[idx(k)] : slot);
    }
  }
  const PrefillCase c(problem, shape, all);
  INFO("offset " << chosen.offsets.back() << ", slot " << chosen.slots.back());
  for (std::int64_t n = 0; n < 3; ++n) {
    REQUIRE((c.row(n).kind == RowKind::kInvalid) == (n == 1 && is_invalid));
  }
  expect_good(c, prepare(problem, {size_of(shape)}), shape);
}

TEST_CASE("GdnPrefillOffsets.OffsetsAndSlotsThatCannotBe", "[gpu][prefill][sanitize]") {
  struct Second {
    std::int64_t offset, slot;
    bool is_invalid;
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  // Of 12 rows, that of the second sequence's first checkpoint is 6.
  // 32 is there already.
  const std::vector<Second> every{
      {32, 6, true},    {0, 6, false},         {16, 6, true},       {33, 6, true},
      {1, 6, true},     {224, 6, true},        {1 << 30, 6, true},  {kMost - 32, 6, true},
      {64, 12, true},   {64, kMost - 1, true}, {64, -1, false},     {16, -1, false},
      {224, -7, false}, {-64, 6, false},       {-kMost, 12, false}, {192, 6, false}};
  for (const bool pool : {false, true}) {
    for (const gdn::Segments segments : {gdn::Segments::kNever, gdn::Segments::kAlways}) {
      for (const bool varlen : {false, true}) {
        PrefillProblem problem = at_offsets(varlen ? small_varlen() : small_prefill(), 32);
        problem.segments = segments;
        problem.states.index_dtype = varlen ? DType::kI64 : DType::kI32;
        CaseOptions options;
        if (pool) {
          problem = in_pool(problem);
          options.read = {0, 1, 2};
          options.slots = 12;
          options.checkpoints_in_pool = true;
        }
        for (const auto& [offset, slot, is_invalid] : every) {
          run_second_with(problem, {{32, 0, offset}, {7, 8, slot}}, is_invalid, options);
        }
        if (!varlen) continue;  // slots of 64 bits
        run_second_with(problem, {{32, 0, 64}, {7, 8, 2 * kMost + 6}}, true, options);
      }
    }
  }
}

// A sequence of no tokens has no checkpoint, and without one it goes on as it is.
TEST_CASE("GdnPrefillOffsets.OfSequencesWithoutTokens", "[gpu][prefill]") {
  for (const std::int64_t offset : {0, 32}) {
    const CaseShape shape{.lengths = {0, 64}};
    const PrefillProblem problem = at_offsets(small_varlen(), 32);
    const PrefillCase c(problem, shape,
                        {.seed = seed(),
                         .separate_out = true,
                         .offsets = 1,
                         .checkpoint_offsets = {offset, 64},
                         .checkpoint_slots = {0, 1}});
    REQUIRE((c.row(0).kind == RowKind::kInvalid) == (offset != 0));
    expect_good(c, prepare(problem, {size_of(shape)}), shape);
  }
}

// An index that is padding says that there is none, as a slot that is negative.
TEST_CASE("GdnPrefillOffsets.PaddingSaysThatThereIsNone", "[gpu][prefill]") {
  const PrefillProblem problem = at_offsets(in_pool(small_varlen()), 32);
  for (const std::int64_t pad : {0, 2, 1000, -1}) {
    const CaseShape shape{.lengths = {100, 64, 64}};
    const PrefillCase c(problem, shape,
                        {.seed = seed(),
                         .read = {3, 4, 5},
                         .slots = 10,
                         .padding = {.slot_id = pad},
                         .offsets = 1,
                         .checkpoint_offsets = {96, 64, 7},
                         .checkpoint_slots = {8, pad, pad},
                         .checkpoints_in_pool = true});
    for (std::int64_t n = 0; n < 3; ++n) REQUIRE(c.row(n).kind == RowKind::kComputed);
    expect_good(c, prepare(problem, {size_of(shape)}), shape);
  }
}

// A launch may keep none: the bits are those of one whose offsets say so.
TEST_CASE("GdnPrefillOffsets.ALaunchThatKeepsNone", "[gpu][prefill]") {
  for (const gdn::Segments segments : {gdn::Segments::kNever, gdn::Segments::kAlways}) {
    PrefillProblem problem = at_offsets(in_pool(small_varlen()), 32);
    problem.segments = segments;
    const CaseShape shape{.lengths = {100, 64, 300}};
    const PrefillCase c(problem, shape,
                        {.seed = seed(),
                         .offsets = 1,
                         .checkpoint_offsets = {0, -1, 0},
                         .checkpoint_slots = {0, 1, 2}});
    const gdn::Prefill prefill = prepare(problem, {size_of(shape)});
    gdn::PrefillArgs args = c.args();
    args.checkpoints = args.checkpoint_offsets = args.checkpoint_slots = {};
    const GdnMemory none = run(c, prefill, args);
    expect_good(c, none, "without checkpoints");
    CHECK(first_difference(none, run(c, prefill)) == "");
  }
}

// The same bits however launched: replays of a graph read offsets and slots anew.
TEST_CASE("GdnPrefillOffsets.SameBitsEveryTime", "[gpu][prefill]") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PrefillProblem problem = at_offsets(in_pool(small_varlen()), 32);
    problem.dtype = dtype;
    const PrefillCase c(problem, kMixed, {.seed = seed(), .checkpoints_in_pool = true});
    const gdn::Prefill prefill = prepare(problem, {c.size(c.args())});
    const GdnMemory first = run(c, prefill);
    for (int i = 0; i < 5; ++i) CHECK(first_difference(run(c, prefill), first) == "");
  }
}

}  // namespace
}  // namespace cubinery::test
