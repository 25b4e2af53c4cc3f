// GDN prefill of packed sequences, and what it keeps of a sequence on the way.
#include <cstdint>
#include <limits>
#include <vector>

#include "harness/random.h"
#include "harness/rounding.h"
#include "tests/gpu/cases.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::PrefillArgs;
using gdn::PrefillProblem;

TEST_CASE("GdnPrefillVarlen.EveryKindOfCuSeqlens", "[gpu][prefill]") {
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    for (const Placement placement : {Placement::kContiguous, Placement::kUnaligned}) {
      PrefillProblem problem = small_varlen();
      problem.cu_seqlens_dtype = dtype;
      problem.checkpoints = Checkpoints::kBefore;
      CaseOptions options;
      options.placement = placement;  // unaligned: cu_seqlens has gaps, too
      run_case(problem, {.lengths = {100, 1, 64, 200}}, options);
      run_case(problem, {.lengths = {100, 1, 64, 200}, .lead = 37, .tail = 70}, options);
    }
  }
}

TEST_CASE("GdnPrefillVarlen.SequencesWithoutTokens", "[gpu][prefill][sanitize]") {
  for (const bool has_initial_state : {true, false}) {
    PrefillProblem problem = small_varlen();
    problem.states.has_initial = has_initial_state;
    for (const auto& lengths : std::vector<std::vector<std::int64_t>>{
             {0, 70, 70}, {70, 0, 70}, {70, 70, 0}, {0, 0, 70, 0, 0}, {0}, {0, 0, 0}}) {
      run_case(problem, {.lengths = lengths});
      run_case(problem, {.lengths = lengths, .lead = 65, .tail = 3});
    }
  }
}

TEST_CASE("GdnPrefillVarlen.ManyShortSequences", "[gpu][prefill]") {
  Random random(seed(), 31);
  for (const std::int64_t longest : {3, 20, 70}) {
    CaseShape shape{.lead = 1, .tail = 1};
    for (int n = 0; n < 300; ++n) shape.lengths.push_back(random.below(longest + 1));
    run_case(small_varlen(), shape);
  }
}

// The heads of most models, around every number of chunks that kernels take together.
TEST_CASE("GdnPrefillVarlen.HeadsOf128", "[gpu][prefill]") {
  PrefillProblem problem = small_varlen();
  problem.key_dim = problem.value_dim = 128;
  for (const bool norms : {false, true}) {
    problem.inputs.use_qk_l2norm = norms;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      problem.dtype = dtype;
      for (const std::int64_t length : {1, 31, 32, 33, 63, 64, 65, 96, 97, 191, 193, 640}) {
        run_case(problem, {.lengths = {length, 0, 1, length + 1, 70}, .lead = 65, .tail = 3});
      }
    }
  }
}

// One sequence is as long as all others together, wherever it is.
TEST_CASE("GdnPrefillVarlen.SkewedLengths", "[gpu][prefill]") {
  for (const std::size_t where : {0, 20, 40}) {
    CaseShape shape{.lengths = std::vector<std::int64_t>(41, 50)};
    shape.lengths[where] = 2100;
    run_case(small_varlen(), shape);
  }
}

// Ranges of tokens that cannot be: every output is NaN, nothing else is touched.
TEST_CASE("GdnPrefillVarlen.MalformedCuSeqlens", "[gpu][prefill][sanitize]") {
  const CaseShape shape{.lengths = {70, 20, 100, 5}};  // 0 70 90 190 195
  struct Bad {
    std::int64_t index, value;
  };
  constexpr Bad kBad[] = {{1, 95}, {2, 10},  {3, 1000}, {4, 196},   {4, 189},    {0, -1},
                          {0, 71}, {2, -70}, {4, 0},    {1, -5000}, {4, 1 << 30}};
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    for (const Checkpoints checkpoints : {Checkpoints::kNone, Checkpoints::kAfter}) {
      PrefillProblem problem = small_varlen();
      problem.cu_seqlens_dtype = dtype;
      problem.checkpoints = checkpoints;
      const gdn::Prefill prefill = prepare(problem, {size_of(shape)});
      for (const Bad& bad : kBad) {
        PrefillCase c(problem, shape, {.seed = seed()});
        store_integer(problem.cu_seqlens_dtype, c.at(c.vector_at(TensorId::kCuSeqlens, bad.index)),
                      bad.value);
        INFO("cu_seqlens[" << bad.index << "] = " << bad.value);
        REQUIRE(c.row(0).kind == RowKind::kInvalid);
        expect_good(c, prefill, shape);
      }
    }
  }
}

TEST_CASE("GdnPrefillVarlen.CuSeqlensBeyond32Bits", "[gpu][prefill]") {
  const CaseShape shape{.lengths = {70, 20}};
  PrefillProblem problem = small_varlen();
  problem.cu_seqlens_dtype = DType::kI64;
  const gdn::Prefill prefill = prepare(problem, {size_of(shape)});
  for (const std::int64_t value :
       {(std::int64_t{1} << 32) + 90, (std::int64_t{1} << 40),
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    PrefillCase c(problem, shape, {.seed = seed()});
    store_integer(problem.cu_seqlens_dtype, c.at(c.vector_at(TensorId::kCuSeqlens, 2)), value);
    INFO("cu_seqlens[2] = " << value);
    expect_good(c, prefill, shape);
  }
}

// One operator, whose launches have strides of their own.
TEST_CASE("GdnPrefillCheckpoints.AStrideOfTheLaunch", "[gpu][prefill]") {
  for (const Checkpoints checkpoints : {Checkpoints::kBefore, Checkpoints::kAfter}) {
    for (const int grain : {16, 64}) {
      for (const bool varlen : {false, true}) {
        PrefillProblem problem = small_prefill();
        problem.checkpoints = checkpoints;
        problem.checkpoint_every = grain;
        problem.varlen = varlen;
        CaseShape shape = uniform(2, 400);
        if (varlen) shape = {.lengths = {0, 191, 192, 193, 64, 1, 400, 16}, .lead = 7, .tail = 5};
        for (const std::int64_t times : {1, 3, 4, 1000}) {
          run_case(problem, shape, {.seed = seed(), .checkpoint_every = grain * times});
        }
      }
    }
  }
}

TEST_CASE("GdnPrefillCheckpoints.BeforeAndAfterEverySpan", "[gpu][prefill][sanitize]") {
  std::vector<PrefillProblem> problems;
  for (const Checkpoints checkpoints : {Checkpoints::kBefore, Checkpoints::kAfter}) {
    for (const int every : {16, 48, 64, 128}) {
      for (const bool varlen : {false, true}) {
        PrefillProblem& problem = problems.emplace_back(small_prefill());
        problem.checkpoints = checkpoints;
        problem.checkpoint_every = every;
        problem.varlen = varlen;
      }
    }
  }
  for (const PrefillProblem& problem : cover(problems)) {
    for (const std::int64_t length : {0, 15, 16, 64, 128, 129, 300}) {
      run_case(problem, uniform(2, length));
    }
    if (!problem.varlen) continue;
    const CaseShape shape{.lengths = {0, 127, 128, 129, 64, 1, 300, 16}, .lead = 7, .tail = 5};
    run_case(problem, shape);
    CaseShape roomy = shape;
    roomy.spare_checkpoints = 2;
    run_case(problem, roomy);
  }
}

TEST_CASE("GdnPrefillCheckpoints.EveryStateDtypeAndLayout", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const gdn::StateLayout layout : {gdn::StateLayout::kVK, gdn::StateLayout::kKV}) {
      PrefillProblem& problem = problems.emplace_back(small_prefill());
      problem.checkpoints = Checkpoints::kAfter;
      problem.value_dim = 96;
      problem.states.dtype = dtype;
      problem.states.layout = layout;
      problem.states.has_initial = problem.states.store = layout == gdn::StateLayout::kVK;
    }
  }
  run_cases(problems, uniform(2, 200));
}

// A range that is too small, or leaves the tensor, makes its own sequence invalid, and no other.
TEST_CASE("GdnPrefillCheckpoints.RangesThatAreTooSmall", "[gpu][prefill][sanitize]") {
  for (const Checkpoints checkpoints : {Checkpoints::kBefore, Checkpoints::kAfter}) {
    for (const DType dtype : {DType::kI32, DType::kI64}) {
      PrefillProblem problem = small_varlen();
      problem.checkpoints = checkpoints;
      problem.cu_seqlens_dtype = dtype;
      // Of 2 checkpoints each: 0 2 4 6, with nothing spare.
      const CaseShape shape{.lengths = {128, 128, 128}};
      const gdn::Prefill prefill = prepare(problem, {size_of(shape)});
      struct Bad {
        std::int64_t index, value;
        std::int64_t invalid;  // sequence
      };
      for (const Bad& bad :
           {Bad{0, -1, 0}, Bad{0, 1, 0}, Bad{3, 5, 2}, Bad{3, 7, 2}, Bad{3, 1 << 30, 2}}) {
        PrefillCase c(problem, shape, {.seed = seed()});
        store_integer(problem.cu_seqlens_dtype,
                      c.at(c.vector_at(TensorId::kCheckpointCuStarts, bad.index)), bad.value);
        INFO("checkpoint_cu_starts[" << bad.index << "] = " << bad.value);
        for (std::int64_t n = 0; n < 3; ++n) {
          REQUIRE((c.row(n).kind == RowKind::kInvalid) == (n == bad.invalid));
        }
        expect_good(c, prefill, shape);
      }
    }
  }
}

}  // namespace
}  // namespace cubinery::test
