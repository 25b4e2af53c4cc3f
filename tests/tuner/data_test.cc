// What tuning launches and what it compares with: data, layouts, shapes, checks.  The operators are
// played by the reference in float, on the host.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tuner/gdn/gdn_check.h"
#include "tuner/gdn/gdn_operands.h"
#include "tuner/gdn/gdn_shapes.h"
#include "tuner/gdn/gdn_tunable.h"
#include "tuner/gdn/rounding.h"

namespace cubinery {
namespace {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::GateMode;
using gdn::Padding;
using gdn::PrefillArgs;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;

PrefillProblem tiny() {
  PrefillProblem problem;
  problem.q_heads = problem.k_heads = 1;
  problem.v_heads = 2;
  problem.key_dim = 16;
  problem.value_dim = 32;
  return problem;
}

// A prefill by the words of cubinery/gdn_prefill.h, with every tensor in memory of the host.
class HostPrefill {
 public:
  HostPrefill(const PrefillProblem& problem, const PrefillArgs& args) : p_(problem), args_(args) {}

  void run() const {
    const std::int64_t sequences = p_.varlen ? args_.cu_seqlens.shape[0] - 1 : args_.q.shape[0];
    for (std::int64_t n = 0; n < sequences; ++n) run_sequence(n);
  }

 private:
  struct Span {
    std::int64_t first, last;
  };

  static std::int64_t integer(const Tensor& x, std::int64_t i) {
    std::int64_t wide = 0;
    std::int32_t narrow = 0;
    const std::byte* const from = static_cast<std::byte*>(x.data) + i * size_of(x.dtype);
    if (x.dtype == DType::kI64) std::memcpy(&wide, from, sizeof(wide));
    if (x.dtype == DType::kI32) std::memcpy(&narrow, from, sizeof(narrow));
    return x.dtype == DType::kI64 ? wide : narrow;
  }

  Span tokens(std::int64_t n) const {
    if (p_.varlen) return {integer(args_.cu_seqlens, n), integer(args_.cu_seqlens, n + 1)};
    return {0, args_.q.shape[p_.token_layout == gdn::TokenLayout::kBHTD ? 2 : 1]};
  }

  std::byte* row(const Tensor& x, std::int64_t n, std::int64_t t, std::int64_t h) const {
    std::vector<std::int64_t> index{t, h};
    if (p_.token_layout == gdn::TokenLayout::kBHTD) std::swap(index[0], index[1]);
    if (!p_.varlen) index.insert(index.begin(), n);
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * x.strides[d];
    return static_cast<std::byte*>(x.data) + at * size_of(x.dtype);
  }

  void append(const Tensor& x, std::int64_t n, std::int64_t h, int heads, int width,
              std::vector<float>* to) const {
    if (!x.present()) return;
    const Span span = tokens(n);
    for (std::int64_t t = span.first; t < span.last; ++t) {
      const std::byte* const from = row(x, n, t, h / (p_.heads() / heads));
      for (int d = 0; d < width; ++d) to->push_back(load(x.dtype, from + d * size_of(x.dtype)));
    }
  }

  std::byte* matrix(const Tensor& x, std::int64_t r, std::int64_t h, int i, int j) const {
    const bool kv = p_.state_layout == StateLayout::kKV;
    return static_cast<std::byte*>(x.data) +
           (r * x.strides[0] + h * x.strides[1] + (kv ? i : j) * x.strides[2] + (kv ? j : i)) *
               size_of(x.dtype);
  }
  void put(const Tensor& x, std::int64_t r, std::int64_t h, const std::vector<float>& state) const {
    for (int i = 0; i < p_.key_dim; ++i) {
      for (int j = 0; j < p_.value_dim; ++j) {
        store(x.dtype, matrix(x, r, h, i, j), state[idx(i * p_.value_dim + j)]);
      }
    }
  }

  void run_sequence(std::int64_t n) const {
    std::int64_t slot = n;
    if (p_.state_location == StateLocation::kPool) {
      slot = integer(args_.state_indices, n);
      const bool zero = p_.pad_index == gdn::PadIndex::kZero;
      const bool padded = p_.padding != Padding::kNone && (zero ? slot == 0 : slot < 0);
      if (padded && p_.padding == Padding::kSkip) return;
      if (padded && p_.padding == Padding::kZero) return zero_rows(n);
      if (padded) slot = args_.scratch_slot;
    }
    for (std::int64_t h = 0; h < p_.heads(); ++h) run_head(n, h, slot);
  }

  void zero_rows(std::int64_t n) const {
    const Span span = tokens(n);
    for (std::int64_t t = span.first; t < span.last; ++t) {
      for (std::int64_t h = 0; h < p_.heads(); ++h) {
        std::memset(row(args_.o, n, t, h), 0, idx(p_.value_dim * size_of(p_.output_dtype)));
      }
    }
  }

  void run_head(std::int64_t n, std::int64_t h, std::int64_t slot) const {
    gdn::PrefillRefHead<float> head{.key_dim = p_.key_dim,
                                    .value_dim = p_.value_dim,
                                    .gate_mode = p_.gate_mode,
                                    .beta_mode = p_.beta_mode,
                                    .use_qk_l2norm = p_.use_qk_l2norm,
                                    .scale = 1 / std::sqrt(static_cast<float>(p_.key_dim))};
    append(args_.q, n, h, p_.q_heads, p_.key_dim, &head.q);
    append(args_.k, n, h, p_.k_heads, p_.key_dim, &head.k);
    append(args_.v, n, h, p_.v_heads, p_.value_dim, &head.v);
    append(args_.g, n, h, p_.heads(), 1, &head.gate);
    append(args_.beta, n, h, p_.heads(), 1, &head.beta);
    const auto vector_value = [&](const Tensor& x) {
      return load(x.dtype, static_cast<std::byte*>(x.data) + h * size_of(x.dtype));
    };
    if (args_.A_log.present()) head.a_log = vector_value(args_.A_log);
    if (args_.dt_bias.present()) head.dt_bias = vector_value(args_.dt_bias);
    std::vector<float> state(idx(p_.key_dim * p_.value_dim)), o(head.v.size());
    for (int i = 0; i < p_.key_dim && p_.has_initial_state; ++i) {
      for (int j = 0; j < p_.value_dim; ++j) {
        state[idx(i * p_.value_dim + j)] = load(p_.state_dtype, matrix(args_.state, slot, h, i, j));
      }
    }
    std::int64_t kept = 0;
    if (p_.checkpoints != Checkpoints::kNone) {
      kept = p_.varlen ? integer(args_.checkpoint_cu_starts, n)
                       : n * checkpoints_of(p_, head.tokens());
    }
    for (int t = 0; t < head.tokens(); ++t) {
      if (p_.checkpoints == Checkpoints::kBefore && t % p_.checkpoint_every == 0) {
        put(args_.checkpoints, kept++, h, state);
      }
      gdn_prefill_ref(head, t, t + 1, state.data(), o.data());
      if (p_.checkpoints == Checkpoints::kAfter && (t + 1) % p_.checkpoint_every == 0) {
        put(args_.checkpoints, kept++, h, state);
      }
      std::byte* to = row(args_.o, n, tokens(n).first + t, h);
      for (int d = 0; d < p_.value_dim; ++d) {
        store(p_.output_dtype, to + d * size_of(p_.output_dtype), o[idx(t * p_.value_dim + d)]);
      }
    }
    if (p_.store_state) put(args_.state, slot, h, state);
  }

  const PrefillProblem& p_;
  const PrefillArgs& args_;
};

constexpr int kChunk = 16;

struct Played {
  GdnCase data;
  std::vector<std::byte> memory;
  PrefillArgs args;
};

// A case with its references, and what HostPrefill makes of it.
Played play(const PrefillProblem& problem, const DataOptions& options = {}) {
  Played played{.data = GdnCase(problem, check_lengths(problem, kChunk), options, kChunk),
                .memory{},
                .args{}};
  for (std::size_t unit = 0; unit < played.data.units(); ++unit) played.data.compute(unit);
  const auto image = played.data.image();
  played.memory.assign(image.begin(), image.end());
  played.args = played.data.args(played.memory.data());
  HostPrefill(problem, played.args).run();
  return played;
}

GdnComparison compare(const Played& played) {
  GdnComparison whole;
  for (std::size_t unit = 0; unit < played.data.units(); ++unit) {
    whole.merge(played.data.compare(unit, played.memory));
  }
  return whole;
}

void check_plays(const PrefillProblem& problem, const DataOptions& options = {}) {
  INFO(problem.to_json());
  REQUIRE(problem.check().ok());
  Played played = play(problem, options);
  const GdnComparison whole = compare(played);
  CHECK(whole.o.ok());
  CHECK(whole.o.magnitude > 0);
  CHECK(whole.state.ok());
  CHECK((whole.state.magnitude > 0) == problem.store_state);
  CHECK(whole.checkpoints.ok());
  CHECK((whole.checkpoints.magnitude > 0) == (problem.checkpoints != Checkpoints::kNone));
  CHECK(played.data.fault(played.memory) == "");
}

TEST_CASE("GdnCase.EveryLayout", "[cpu]") {
  for (const bool varlen : {false, true}) {
    for (const auto tokens : {gdn::TokenLayout::kBTHD, gdn::TokenLayout::kBHTD}) {
      for (const StateLayout states : {StateLayout::kKV, StateLayout::kVK}) {
        PrefillProblem problem = tiny();
        problem.varlen = varlen;
        problem.token_layout = tokens;
        problem.state_layout = states;
        problem.cu_seqlens_dtype = varlen ? DType::kI64 : DType::kI32;
        check_plays(problem);
      }
    }
  }
}

TEST_CASE("GdnCase.EveryModeOfGatesAndStates", "[cpu]") {
  for (const GateMode mode :
       {GateMode::kNone, GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
    PrefillProblem problem = tiny();
    problem.gate_mode = mode;
    problem.use_qk_l2norm = true;
    check_plays(problem);
  }
  for (const BetaMode mode :
       {BetaMode::kOne, BetaMode::kGiven, BetaMode::kLogit, BetaMode::kDoubledLogit}) {
    PrefillProblem problem = tiny();
    problem.beta_mode = mode;
    problem.state_dtype = DType::kBF16;
    check_plays(problem);
  }
  for (const bool initial : {false, true}) {
    for (const bool store : {false, true}) {
      PrefillProblem problem = tiny();
      problem.has_initial_state = initial;
      problem.store_state = store;
      check_plays(problem);
    }
  }
}

TEST_CASE("GdnCase.EveryKindOfPadding", "[cpu]") {
  for (const Padding padding :
       {Padding::kNone, Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const gdn::PadIndex index : {gdn::PadIndex::kNegative, gdn::PadIndex::kZero}) {
      PrefillProblem problem = tiny();
      problem.varlen = index == gdn::PadIndex::kZero;
      problem.state_location = StateLocation::kPool;
      problem.padding = padding;
      problem.pad_index = index;
      problem.index_dtype = problem.varlen ? DType::kI64 : DType::kI32;
      problem.checkpoints = Checkpoints::kBefore;
      problem.checkpoint_every = kChunk;
      check_plays(problem);
    }
  }
}

TEST_CASE("GdnCase.CheckpointsOfBothKinds", "[cpu]") {
  for (const bool varlen : {false, true}) {
    for (const Checkpoints when : {Checkpoints::kBefore, Checkpoints::kAfter}) {
      PrefillProblem problem = tiny();
      problem.varlen = varlen;
      problem.checkpoints = when;
      problem.checkpoint_every = 2 * kChunk;
      check_plays(problem);
    }
  }
}

TEST_CASE("GdnCase.EveryDistribution", "[cpu]") {
  for (const Gates gates : kAllGates) {
    PrefillProblem problem = tiny();
    problem.varlen = true;
    check_plays(problem, {.seed = 6, .gates = gates, .key_correlation = 0.9});
  }
}

TEST_CASE("GdnCase.DecodeIsPackedTokens", "[cpu]") {
  gdn::DecodeProblem problem;
  problem.key_dim = problem.value_dim = 32;
  problem.state_location = StateLocation::kPool;
  problem.padding = Padding::kSkip;
  problem.gate_mode = GateMode::kComputed;
  const PrefillProblem packed = small_problem(as_prefill(problem));
  GdnCase data(packed, check_lengths(packed, 0), {}, 0);
  for (std::size_t unit = 0; unit < data.units(); ++unit) data.compute(unit);
  std::vector<std::byte> memory(data.image().begin(), data.image().end());
  const PrefillArgs args = data.args(memory.data());
  const gdn::DecodeArgs step = as_decode(args);
  CHECK(step.q.rank == 3);
  CHECK(step.q.shape[0] == 6);
  CHECK(step.g.rank == 2);
  CHECK(step.state_indices.shape[0] == 6);
  CHECK(step.A_log.present());
  HostPrefill(packed, args).run();
  GdnComparison whole;
  for (std::size_t unit = 0; unit < data.units(); ++unit) whole.merge(data.compare(unit, memory));
  CHECK(whole.o.ok());
  CHECK(whole.state.ok());
  CHECK(whole.state.magnitude > 0);
  CHECK(data.fault(memory) == "");
}

TEST_CASE("GdnCase.FindsWhatIsWrong", "[cpu]") {
  PrefillProblem problem = tiny();
  problem.varlen = true;
  problem.state_location = StateLocation::kPool;
  problem.padding = Padding::kZero;
  const Played right = play(problem);
  const auto spoil = [&](const Tensor& tensor, std::int64_t element, float value) {
    Played played = right;
    const std::ptrdiff_t at = static_cast<std::byte*>(tensor.data) - right.memory.data() +
                              element * size_of(tensor.dtype);
    store(tensor.dtype, played.memory.data() + at, value);
    return played;
  };
  const std::int64_t heads = 2, dim = 32, matrix = 16 * 32;
  // The padded sequence is tokens 17 to 19.
  CHECK_FALSE(compare(spoil(right.args.o, 0, 99)).o.ok());
  CHECK_FALSE(compare(spoil(right.args.o, 0, NAN)).o.ok());
  Played padded = spoil(right.args.o, 17 * heads * dim, 1);
  CHECK(compare(padded).o.ok());
  CHECK(padded.data.fault(padded.memory) == "o of padding is 1, expected 0");

  std::int32_t slot = 0;
  std::memcpy(&slot, right.args.state_indices.data, sizeof(slot));
  CHECK_FALSE(compare(spoil(right.args.state, slot * heads * matrix + 5, 99)).state.ok());
  Played foreign = spoil(right.args.state, 5, 99);  // slot 0 is nobody's
  CHECK(compare(foreign).state.ok());
  CHECK(foreign.data.fault(foreign.memory) == "writes in or around state where no sequence may");
  Played behind = spoil(right.args.v, elements_of(right.args.v), 1);
  CHECK(behind.data.fault(behind.memory) == "writes in or around v where no sequence may");
}

TEST_CASE("SmallProblemsKeepTheGroups", "[cpu]") {
  PrefillProblem problem;
  problem.q_heads = problem.k_heads = 16;
  problem.v_heads = 64;
  problem.checkpoint_every = 4096;
  const PrefillProblem grouped = small_problem(problem);
  CHECK(grouped.k_heads == 1);
  CHECK(grouped.q_heads == 1);
  CHECK(grouped.v_heads == 4);
  CHECK(grouped.checkpoint_every == 64);
  problem.v_heads = 16;
  CHECK(small_problem(problem).k_heads == 2);
  CHECK(small_problem(problem).v_heads == 2);
  problem.q_heads = 64;
  problem.k_heads = problem.v_heads = 1;  // groups of 64 are taken as groups of 4
  CHECK(small_problem(problem).q_heads == 4);
  CHECK(small_problem(problem).check().ok());
}

// The floors that docs/performance.md refers to.
TEST_CASE("LeastBytesCountEveryOperandOnce", "[cpu]") {
  gdn::DecodeProblem decode;
  decode.gate_dtype = decode.beta_dtype = DType::kBF16;
  decode.state_location = StateLocation::kPool;
  const std::int64_t states = 2 * 32 * 128 * 128 * 4, rows = (2 * 16 + 2 * 32) * 128 * 2;
  CHECK(least_bytes(as_prefill(decode), {.lengths = std::vector<std::int64_t>(8, 1)}) ==
        8 * (states + rows + 32 * (2 + 2) + 4));
  PrefillProblem prefill;
  prefill.v_heads = 16;
  prefill.varlen = true;
  prefill.has_initial_state = false;
  CHECK(least_bytes(prefill, {.lengths = {1000, 24}}) ==
        1024 * (4 * 16 * 128 * 2 + 16 * (4 + 4)) + 2 * 16 * 128 * 128 * 4);
  prefill.checkpoints = Checkpoints::kAfter;
  CHECK(least_bytes(prefill, {.lengths = {1000, 24}, .checkpoints = 15}) ==
        1024 * (4 * 16 * 128 * 2 + 16 * (4 + 4)) + 17 * 16 * 128 * 128 * 4);
}

TEST_CASE("RotationsLeaveNothingInTheCache", "[cpu]") {
  CHECK(rotation(std::size_t{1} << 40, 0) == 3);
  CHECK(rotation(1'000'000, 0) == 241);  // of 60 MB at least
  CHECK(rotation(1'000'000, 126'000'000) == 505);
}

TEST_CASE("PatternsHaveTheRowsThatTheyPromise", "[cpu]") {
  const PrefillProblem problem = tiny();
  const GdnPatterns patterns(problem, {.seed = 6});
  const std::vector<double> k = from_bytes(problem.dtype, patterns.k);
  REQUIRE(k.size() == idx(GdnPatterns::kRows * problem.key_dim));
  double sum = 0;
  for (std::size_t d = 0; d < 16; ++d) sum += k[d] * k[d];
  CHECK(std::abs(sum - 1) < 0.02);  // unit rows where the kernel does not make them so
  CHECK(patterns.g.size() == idx(GdnPatterns::kRows * 2 * 4));
  CHECK(patterns.A_log.empty());
  PrefillProblem eight = problem;
  eight.q_heads = eight.k_heads = eight.v_heads = 8;
  const GdnPatterns qwen(eight, {.seed = 6});
  int still = 0;
  for (const double decay : qwen.decay) still += decay == 0 ? 1 : 0;
  CHECK(still == 2);
}

TEST_CASE("DecodeShapes", "[cpu]") {
  const gdn::DecodeProblem problem;  // 16, 16 and 32 heads
  const auto same = gdn_shape(problem, {{"batch", 8}});
  REQUIRE(same);
  CHECK(same->batch == 8);
  CHECK(same->problem.heads() == 32);
  const auto more = gdn_shape(problem, {{"batch", 8}, {"k_heads", 32}, {"v_heads", 64}});
  REQUIRE(more);
  CHECK(more->problem.q_heads == 16);
  CHECK(more->problem.k_heads == 32);
  CHECK(more->problem.v_heads == 64);
  for (const Shape& shape :
       {Shape{}, Shape{{"v_heads", 32}}, Shape{{"batch", 0}}, Shape{{"batch", 8}, {"v_heads", 33}},
        Shape{{"batch", 8}, {"rows", 1}}, Shape{{"tokens", 8}}}) {
    const auto refused = gdn_shape(problem, shape);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("PrefillShapes", "[cpu]") {
  PrefillProblem problem;
  problem.varlen = true;
  using Lengths = std::vector<std::int64_t>;
  CHECK(gdn_shape(problem, {{"tokens", 10}, {"sequences", 3}})->lengths() == Lengths{4, 3, 3});
  CHECK(gdn_shape(problem, {{"tokens", 10}, {"sequences", 3}, {"max_seqlen", 7}})->lengths() ==
        Lengths{7, 2, 1});
  CHECK(gdn_shape(problem, {{"tokens", 10}, {"sequences", 3}, {"max_seqlen", 8}})->lengths() ==
        Lengths{8, 1, 1});
  CHECK(gdn_shape(problem, {{"tokens", 10}, {"sequences", 1}, {"max_seqlen", 10}})->lengths() ==
        Lengths{10});
  const auto rank = gdn_shape(
      problem, {{"tokens", 10}, {"sequences", 1}, {"q_heads", 2}, {"k_heads", 2}, {"v_heads", 8}});
  REQUIRE(rank);
  CHECK(rank->problem.k_heads == 2);
  CHECK(rank->problem.heads() == 8);
  for (const Shape& shape :
       {Shape{{"tokens", 10}}, Shape{{"sequences", 1}}, Shape{{"tokens", 2}, {"sequences", 3}},
        Shape{{"tokens", 10}, {"sequences", 3}, {"max_seqlen", 3}},
        Shape{{"tokens", 10}, {"sequences", 3}, {"max_seqlen", 9}},
        Shape{{"tokens", 10}, {"sequences", 3}, {"batch", 9}}}) {
    const auto refused = gdn_shape(problem, shape);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kInvalidArgument);
  }
  problem.varlen = false;
  CHECK(gdn_shape(problem, {{"tokens", 12}, {"sequences", 3}}));
  CHECK_FALSE(gdn_shape(problem, {{"tokens", 10}, {"sequences", 3}}));
}

TEST_CASE("TunablesWithoutADevice", "[cpu]") {
  Options options;
  options.device = kNoDevice;
  options.arch = "sm_90a";
  options.cache_dir = "";
  options.offline = true;
  const Context context = Context::create(options).value();
  const auto decode = make_tunable(context, gdn::DecodeProblem{}).value();
  CHECK(decode->features({{"batch", 8}}) == Shape{{"states", 256}});
  CHECK(decode->default_configuration({{"batch", 8}}) < decode->space().configurations.size());
  CHECK(decode->workload({{"batch", 8}}).error().code() == Code::kUnsupported);
  CHECK(decode->workload({{"tokens", 8}}).error().code() == Code::kInvalidArgument);
  PrefillProblem problem;
  problem.varlen = true;
  const auto prefill = make_tunable(context, problem).value();
  const Shape shape{{"tokens", 8192}, {"sequences", 4}, {"max_seqlen", 4096}};
  CHECK(prefill->features(shape) ==
        Shape{{"states", 128}, {"length", 2048}, {"skew", 2}, {"group", 2}});
  CHECK(prefill->default_configuration(shape) < prefill->space().configurations.size());
  CHECK(prefill->check(0).error().code() == Code::kUnsupported);
  problem.key_dim = 17;
  CHECK(make_tunable(context, problem).error().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace cubinery
