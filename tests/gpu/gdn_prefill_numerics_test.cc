// GDN prefill: how close it comes to the reference and to decode with every kind of gate, over long
// sequences, and for problems of any kind.
#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/random.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::PrefillArgs;
using gdn::PrefillProblem;
using gdn::StateLocation;

TEST_CASE("GdnPrefill.EveryGateDistribution", "[gpu][prefill][slow]") {
  std::vector<PrefillProblem> problems;
  for (const DType dtype : kFloats) {
    PrefillProblem given = small_prefill();
    given.dtype = dtype;
    given.output_dtype = DType::kF32;  // else its rounding hides what was lost before
    problems.push_back(given);
    PrefillProblem computed = given;
    computed.inputs.gate_mode = GateMode::kComputed;
    computed.inputs.use_qk_l2norm = true;
    problems.push_back(computed);
    PrefillProblem alpha = given;
    alpha.inputs.gate_mode = GateMode::kAlpha;
    alpha.inputs.gate_dtype = dtype;  // f16: e^-31 is 0
    problems.push_back(alpha);
  }
  for (const GateDistribution gates : kGateDistributions) {
    CaseOptions options;
    options.gates = gates;
    run_cases(problems, uniform(1, 1000), options);
  }
}

// Correlated keys are the hardest for the inverse of a chunk.
TEST_CASE("GdnPrefill.CorrelatedKeys", "[gpu][prefill][slow]") {
  std::vector<PrefillProblem> problems;
  for (const DType dtype : kFloats) {
    PrefillProblem& problem = problems.emplace_back(small_prefill());
    problem.dtype = dtype;
    problem.output_dtype = DType::kF32;
    problem.inputs.use_qk_l2norm = dtype == DType::kBF16;
  }
  for (const double rho : {0.0, 0.5, 0.9, 0.99, 1.0}) {
    for (const GateDistribution gates : {GateDistribution::kInit, GateDistribution::kUndecayed}) {
      CaseOptions options;
      options.gates = gates;
      options.key_correlation = rho;
      run_cases(problems, uniform(1, 400), options);
    }
  }
}

TEST_CASE("GdnPrefill.LongSequence", "[gpu][prefill][big][slow]") {
  for (const GateDistribution gates : {GateDistribution::kQwen, GateDistribution::kUndecayed}) {
    PrefillProblem problem = small_varlen();
    problem.heads.q = problem.heads.k = 1;
    problem.heads.v = 2;
    problem.key_dim = problem.value_dim = 128;
    CaseOptions options;
    options.gates = gates;
    run_case(problem, {.lengths = {131072}}, options);
  }
}

// The difference to decode that is allowed, relative to the largest value of the row.  Prefill
// rounds five operands of matrix products to dtype, decode none (cubinery/gdn.h): each of the five
// is wrong by at most half a unit, which sums over many elements average out.  f32 is split into
// two parts of 11 bits, and sums of products are good to a few 2^-21 of the largest term.
double agreement(DType dtype) {
  constexpr double kUnits = 3;
  const double unit = dtype == DType::kBF16 ? 0x1p-7 : dtype == DType::kF16 ? 0x1p-10 : 0x1p-18;
  return kUnits * unit;
}

DecodeProblem decode_problem(const PrefillProblem& p) {
  DecodeProblem problem;
  problem.heads = p.heads;
  problem.key_dim = p.key_dim;
  problem.value_dim = p.value_dim;
  problem.dtype = p.dtype;
  problem.output_dtype = p.output_dtype;
  problem.inputs.gate_mode = p.inputs.gate_mode;
  problem.inputs.beta_mode = p.inputs.beta_mode;
  problem.inputs.use_qk_l2norm = p.inputs.use_qk_l2norm;
  return problem;
}

// The same tokens by decode, one step for each.  Requires: dense, BTHD, every dtype of decode's
// default but those that decode_problem() takes over.
GdnMemory run_steps(const PrefillCase& c) {
  const gdn::Decode decode = prepare(decode_problem(c.problem()), {c.sequences()});
  const DeviceStream stream = make_stream(gpu());
  c.upload();
  for (std::int64_t t = 0; t < c.length(0); ++t) {
    gdn::PrefillArgs token = c.args();
    for (Tensor* tensor : token_tensors(&token)) slice(tensor, c.token_dimension(), t, 1);
    const gdn::DecodeArgs args{.q = token.q,
                               .k = token.k,
                               .v = token.v,
                               .g = token.g,
                               .beta = token.beta,
                               .o = token.o,
                               .state = token.state};
    const Status status = decode.launch(stream.get(), args);
    INFO(status.message());
    REQUIRE(status.ok());
  }
  stream.synchronize().value();
  return c.download();
}

template <class Real>
double largest(const std::vector<Real>& values) {
  double largest = 0;
  for (const Real value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

// The largest difference of any two values.
template <class Real>
double difference(const std::vector<Real>& a, const std::vector<Real>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, distance(a[i], b[i]));
  return worst;
}

// The worst difference of a row of o, relative to its largest value.  A row whose q is nearly
// orthogonal to the state is what large terms leave when they cancel: it counts as no smaller than
// 1/16 of the head's largest.
double row_difference(const PrefillCase& c, const GdnMemory& a, const GdnMemory& b, std::int64_t n,
                      std::int64_t h) {
  const auto o_row = [&](const GdnMemory& memory, std::int64_t t) {
    return c.row_values(memory, TensorId::kO, n, t, h, c.problem().value_dim);
  };
  double head = 0, worst = 0;
  for (std::int64_t t = 0; t < c.length(n); ++t) head = std::max(head, largest(o_row(b, t)));
  for (std::int64_t t = 0; t < c.length(n); ++t) {
    const std::vector<float> row = o_row(b, t);
    worst = std::max(worst, difference(o_row(a, t), row) / std::max(largest(row), head / 16));
  }
  return worst;
}

void expect_agreement(const PrefillProblem& problem, GateDistribution gates) {
  const PrefillCase c(problem, uniform(2, 200), {.seed = seed(), .gates = gates});
  const GdnMemory whole = run(c, prepare(problem, {c.size(c.args())}));
  const GdnMemory steps = run_steps(c);
  for (std::int64_t n = 0; n < c.sequences(); ++n) {
    for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
      const double o = row_difference(c, whole, steps, n, h);
      const auto by_decode = c.matrix_values<double>(steps, TensorId::kState, n, h);
      const double state =
          difference(c.matrix_values<double>(whole, TensorId::kState, n, h), by_decode) /
          largest(by_decode);
      INFO("sequence " << n << ", head " << h << ": o differs by " << o
                       << " of a row's largest value, the state by " << state << "; gates "
                       << static_cast<int>(gates) << ", seed " << seed() << ", problem "
                       << problem.to_json());
      CHECK(o <= agreement(problem.dtype));
      CHECK(state <= agreement(problem.dtype));
    }
  }
}

TEST_CASE("GdnPrefill.AgreesWithDecode", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const bool normalised : {false, true}) {
    for (const DType dtype : kFloats) {
      PrefillProblem& problem = problems.emplace_back(small_prefill());
      problem.dtype = problem.output_dtype = dtype;
      problem.inputs.use_qk_l2norm = normalised;
    }
  }
  for (const PrefillProblem& problem : problems) {
    for (const GateDistribution gates : kGateDistributions) expect_agreement(problem, gates);
  }
}

// A problem with every field random, and a case that goes with it.
struct AnyCase {
  PrefillProblem problem;
  CaseShape shape;
  CaseOptions options;
};

template <class T, std::size_t kCount>
T any_of(Random* random, const T (&values)[kCount]) {
  return values[static_cast<std::size_t>(random->below(kCount))];
}

void choose_heads(Random* random, PrefillProblem* problem) {
  const int few = static_cast<int>(1 + random->below(3));
  const int many = few * static_cast<int>(1 + random->below(4));
  const bool grouped_values = random->below(3) != 0;
  problem->heads.k = few;
  problem->heads.q = grouped_values ? few : many;
  problem->heads.v = grouped_values ? many : few;
}

void choose_types(Random* random, PrefillProblem* p) {
  for (DType* dtype : {&p->dtype, &p->output_dtype, &p->inputs.gate_dtype, &p->inputs.beta_dtype,
                       &p->inputs.a_log_dtype, &p->inputs.dt_bias_dtype, &p->states.dtype}) {
    *dtype = any_of(random, kFloats);
  }
  for (DType* dtype : {&p->states.index_dtype, &p->cu_seqlens_dtype}) {
    *dtype = any_of(random, {DType::kI32, DType::kI64});
  }
}

void choose_modes(Random* random, PrefillProblem* p) {
  const auto coin = [random] { return random->below(2) != 0; };
  p->token_layout = any_of(random, {gdn::TokenLayout::kBTHD, gdn::TokenLayout::kBHTD});
  p->varlen = coin();
  p->states.layout = any_of(random, {gdn::StateLayout::kKV, gdn::StateLayout::kVK});
  p->states.has_initial = random->below(4) != 0;
  p->states.store = random->below(4) != 0;
  // Without any state there is no pool.
  if (p->states.has_initial || p->states.store) {
    p->states.location = any_of(random, {StateLocation::kDense, StateLocation::kPool});
  }
  p->inputs.gate_mode =
      any_of(random, {GateMode::kNone, GateMode::kLog, GateMode::kAlpha, GateMode::kComputed});
  p->inputs.beta_mode =
      any_of(random, {BetaMode::kOne, BetaMode::kGiven, BetaMode::kLogit, BetaMode::kDoubledLogit});
  p->inputs.use_qk_l2norm = coin();
  p->checkpoints = any_of(
      random, {Checkpoints::kNone, Checkpoints::kBefore, Checkpoints::kAfter, Checkpoints::kAt});
  p->checkpoint_every = static_cast<int>(16 * (1 + random->below(8)));
  p->batch_invariant = coin();
}

AnyCase any_case(std::uint64_t number) {
  Random random(seed(), 9000 + number);
  AnyCase any;
  PrefillProblem& p = any.problem;
  choose_heads(&random, &p);
  choose_types(&random, &p);
  choose_modes(&random, &p);
  p.key_dim = static_cast<int>(16 * (1 + random.below(16)));
  p.value_dim = static_cast<int>(16 * (1 + random.below(16)));
  // Longer keys are not split.
  if (p.key_dim <= 128 && random.below(2) != 0) p.segments = gdn::Segments::kAlways;
  const std::int64_t sequences = 1 + random.below(4);
  any.shape = uniform(sequences, random.below(700));
  if (p.varlen) {
    for (std::int64_t& length : any.shape.lengths) length = random.below(700);
    any.shape.lead = random.below(5);
    any.shape.tail = random.below(5);
    any.shape.spare_checkpoints = random.below(2);
  }
  CaseOptions& options = any.options;
  options.seed = number;
  // Strong: keys may be longer than 1, which needs small betas not to grow without bound.
  const bool may_be_strong = p.inputs.beta_mode == BetaMode::kGiven;
  options.gates = kGateDistributions[static_cast<std::size_t>(may_be_strong ? random.below(5)
                                                                            : 1 + random.below(4))];
  options.placement = static_cast<Placement>(random.below(5));
  options.key_correlation = any_of(&random, {0.0, 0.5, 0.9});
  if (random.below(2) != 0) options.scale = static_cast<float>(random.uniform(0.1, 2));
  options.head_gap = 8 * random.below(2);
  options.slot_gap = 8 * random.below(3);
  if (p.states.location == StateLocation::kPool) {
    const std::vector<Padding> all = every_padding(0);
    options.padding =
        all[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(all.size())))];
    options.padded = random.below(sequences + 1);
  }
  if (p.states.has_initial) options.fresh_every = random.below(4);
  if (random.below(2) != 0) options.checkpoint_every = p.checkpoint_every * (1 + random.below(3));
  options.separate_out = p.states.store && random.below(2) != 0;
  options.write_indices =
      p.states.location == StateLocation::kPool && p.states.store && random.below(2) != 0;
  options.offsets = 1 + random.below(3);
  options.checkpoints_in_pool = keeps_in_pool(p, number);
  return any;
}

void run_random_problems(std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t i = first; i < first + count; ++i) {
    const AnyCase any = any_case(i);
    INFO("random problem " << i);
    run_case(any.problem, any.shape, any.options);
  }
}

// In parts, which processes take side by side: none has a kernel of another.
TEST_CASE("GdnPrefill.RandomProblems1To10", "[gpu][prefill][slow]") { run_random_problems(0, 10); }
TEST_CASE("GdnPrefill.RandomProblems11To20", "[gpu][prefill][slow]") {
  run_random_problems(10, 10);
}
TEST_CASE("GdnPrefill.RandomProblems21To30", "[gpu][prefill][slow]") {
  run_random_problems(20, 10);
}
TEST_CASE("GdnPrefill.RandomProblems31To40", "[gpu][prefill][slow]") {
  run_random_problems(30, 10);
}

}  // namespace
}  // namespace cubinery::test
