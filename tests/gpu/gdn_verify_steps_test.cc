// GDN verify against steps of decode, bit for bit; states of every step, and going on from the
// accepted ones.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/gdn/decode_portable.h"
#include "runtime/gdn/decode_state.h"
#include "runtime/gdn/verify_portable.h"
#include "runtime/gdn/verify_state.h"
#include "runtime/operator/keyed_path.h"
#include "runtime/operator/tuning_context.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/numbers.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::Padding;
using gdn::PadIndex;
using gdn::StateLocation;
using gdn::StoredStates;
using gdn::VerifyArgs;
using gdn::VerifyProblem;

// The default configurations of both operators sum in the same order.
gdn::Verify verify_of(const VerifyProblem& problem, std::size_t which = 0) {
  const Target target = target_of(gpu().context());
  const auto values = gdn::verify_portable().defaults(problem, target).at(which);
  return gdn::create_verify(gpu().context(), problem, target, values).value();
}

// The decode whose steps a verification's tokens are, of dense states.
gdn::Decode decode_of(const VerifyProblem& problem) {
  DecodeProblem step;
  copy_fields(problem, &step);
  step.states.location = StateLocation::kDense;
  step.states.padding = Padding::kNone;
  step.states.store = true;
  const Target target = target_of(gpu().context());
  const auto values = gdn::decode_portable().defaults(step, target).front();
  return gdn::create_decode(gpu().context(), step, target, values).value();
}

// Index `i` of a dimension, which is gone.
Tensor at(Tensor tensor, std::size_t dimension, std::int64_t i) {
  if (!tensor.present()) return tensor;
  slice(&tensor, dimension, i, 1);
  for (std::size_t d = dimension; d + 1 < static_cast<std::size_t>(tensor.rank); ++d) {
    tensor.shape[d] = tensor.shape[d + 1];
    tensor.strides[d] = tensor.strides[d + 1];
  }
  --tensor.rank;
  return tensor;
}

// Row i of the first dimension, which stays.
Tensor row(Tensor tensor, std::int64_t i) {
  slice(&tensor, 0, i, 1);
  return tensor;
}

// The token in row `i` of packed tensors, or of one request's, as a step of one request.
gdn::DecodeArgs step_args(const VerifyArgs& tokens, std::int64_t i, const Tensor& from,
                          const Tensor& to) {
  gdn::DecodeArgs step{.q = row(tokens.q, i),
                       .k = row(tokens.k, i),
                       .v = row(tokens.v, i),
                       .gates = tokens.gates,
                       .o = row(tokens.o, i),
                       .states = {.in = from, .out = to}};
  if (step.gates.g.present()) step.gates.g = row(step.gates.g, i);
  if (step.gates.beta.present()) step.gates.beta = row(step.gates.beta, i);
  return step;
}

// The tokens of request n of dense tensors, as rows.
VerifyArgs request(VerifyArgs args, std::int64_t n) {
  for (Tensor* tensor : {&args.q, &args.k, &args.v, &args.gates.g, &args.gates.beta, &args.o}) {
    *tensor = at(*tensor, 0, n);
  }
  return args;
}

// What differs in numbers that kernels compute and in where they go.
std::vector<VerifyProblem> problems_to_step() {
  std::vector<VerifyProblem> problems;
  for (const DType state_dtype : kFloats) {
    for (const gdn::StateLayout layout : kLayouts) {
      VerifyProblem problem = small_verify();
      problem.value_dim = 128;
      problem.states.dtype = state_dtype;
      problem.states.layout = layout;
      problem.round_each_token = state_dtype != DType::kF32;
      problems.push_back(problem);
      problem.inputs.gate_mode = GateMode::kComputed;
      problem.inputs.beta_mode = BetaMode::kDoubledLogit;
      problem.inputs.use_qk_l2norm = true;
      problem.inputs.gate_dtype = DType::kBF16;
      problem.output_dtype = DType::kF32;
      problems.push_back(problem);
    }
  }
  problems.push_back(small_verify());
  problems.back().inputs.gate_mode = GateMode::kAlpha;
  problems.push_back(small_verify());
  problems.back().inputs.gate_mode = GateMode::kNone;
  problems.back().inputs.beta_mode = BetaMode::kOne;
  problems.push_back(small_verify());
  problems.back().states.has_initial = false;
  return problems;
}

// Both default kernels, in place and with every step's state.
TEST_CASE("GdnVerifySteps.BitsOfDecodeSteps", "[gpu][verify]") {
  constexpr std::int64_t kTokens = 5;
  for (VerifyProblem problem : problems_to_step()) {
    for (const StoredStates stored : {StoredStates::kLast, StoredStates::kEvery}) {
      problem.stored_states = stored;
      const VerifyCase one(problem, uniform(3, kTokens), {.seed = seed()});
      const VerifyArgs args = one.args();
      for (const std::size_t which : {0u, 1u}) {
        const gdn::Verify verify = verify_of(problem, which);
        const GdnMemory at_once = run(one, verify);
        one.upload();
        const DeviceStream stream = make_stream(gpu());
        const gdn::Decode decode = decode_of(problem);
        VerifyProblem later = problem;  // from the second token on
        later.states.has_initial = true;
        const gdn::Decode next = decode_of(later);
        const bool every = stored == StoredStates::kEvery;
        for (std::int64_t n = 0; n < one.sequences(); ++n) {
          Tensor from = args.states.in;
          if (from.present()) from = row(from, n);
          for (std::int64_t t = 0; t < kTokens; ++t) {
            const Tensor to = every ? row(at(args.states.out, 1, t), n) : from;
            gdn::DecodeArgs step = step_args(request(args, n), t, from, to);
            if (t == 0 && !problem.states.has_initial) step.states.in = {};
            (t == 0 ? decode : next).launch(stream.get(), step).value();
            from = to;
          }
        }
        stream.synchronize().value();
        INFO("problem " << problem.to_json() << ", kernel " << which << ", seed " << seed());
        CHECK(first_difference(at_once, one.download()) == "");
      }
    }
  }
}

// Verify, accept some tokens, verify on: what decoding only the accepted ones gives.  Dense states.
TEST_CASE("GdnVerifySteps.GoesOnFromAcceptedTokens", "[gpu][verify]") {
  constexpr std::int64_t kTokens = 4, kRequests = 5;
  const std::vector<std::int64_t> accepted = {0, 4, 2, 3, 4};
  for (VerifyProblem problem : problems_to_step()) {
    if (!problem.states.has_initial) continue;
    problem.stored_states = StoredStates::kEvery;
    for (const DType accepted_dtype : {DType::kI32, DType::kI64}) {
      const VerifyCase drafts(problem, uniform(kRequests, kTokens), {.seed = seed()});
      const VerifyCase more(problem, uniform(kRequests, kTokens), {.seed = seed() + 1});
      const Numbers counts(accepted_dtype, {kRequests}, accepted);
      VerifyProblem on = problem;
      on.from_accepted = true;
      on.accepted_dtype = accepted_dtype;
      const VerifyArgs before = drafts.args();
      VerifyArgs args = more.args();
      args.accepted = counts.tensor();
      args.states.in = before.states.out;

      const DeviceStream stream = make_stream(gpu());
      verify_of(problem).launch(stream.get(), before).value();
      verify_of(on).launch(stream.get(), args).value();
      stream.synchronize().value();
      const GdnMemory verified = more.download();

      drafts.upload();
      more.upload();
      const gdn::Decode decode = decode_of(problem);
      for (std::int64_t n = 0; n < kRequests; ++n) {
        Tensor from = row(before.states.in, n);
        const auto step = [&](const VerifyArgs& tokens, std::int64_t t) {
          const Tensor to = row(at(tokens.states.out, 1, t), n);
          decode.launch(stream.get(), step_args(request(tokens, n), t, from, to)).value();
          from = to;
        };
        // The first token is always right.
        for (std::int64_t t = 0; t < std::max<std::int64_t>(accepted[idx(n)], 1); ++t)
          step(before, t);
        for (std::int64_t t = 0; t < kTokens; ++t) step(args, t);
      }
      stream.synchronize().value();
      INFO("problem " << problem.to_json() << ", seed " << seed());
      CHECK(first_difference(verified, more.download()) == "");
    }
  }
}

// A pool, with a table of slots for each request's steps, as engines have it: read by a count,
// written in place.  One graph, whose replays see other counts, slots, bounds.
class SlotTable {
 public:
  static constexpr std::int64_t kRequests = 3, kSteps = 6, kSlots = 32;

  explicit SlotTable(const VerifyProblem& given) : problem_(with_table(given)) {
    const std::int64_t matrix = problem_.key_dim * problem_.value_dim;
    const std::int64_t elements = problem_.heads.count() * matrix;
    const auto bytes = idx(kSlots * elements * size_of(problem_.states.dtype));
    pool_.emplace(gpu(), bytes);
    const bool kv = problem_.states.layout == gdn::StateLayout::kKV;
    state_ = Tensor::contiguous(
        pool_->data(), problem_.states.dtype,
        {kSlots, problem_.heads.count(), kv ? problem_.key_dim : problem_.value_dim,
         kv ? problem_.value_dim : problem_.key_dim});
  }

  const VerifyProblem& problem() const { return problem_; }
  const DeviceBuffer& pool() const { return *pool_; }
  const Tensor& state() const { return state_; }
  Tensor slot(std::int64_t i) const { return row(state_, i); }
  std::vector<std::byte> bytes(std::int64_t slot) const {
    const std::size_t each = pool_->bytes() / idx(kSlots);
    return pool_->download(idx(slot) * each, each);
  }
  // Fills all slots with the states of a case of so many sequences.
  void fill(const VerifyCase& source) const {
    const auto from = source.bytes(source.memory(), GdnTensor::kState);
    pool_->upload(from.first(pool_->bytes()));
  }

 private:
  static VerifyProblem with_table(VerifyProblem problem) {
    problem.varlen = true;
    problem.max_tokens = static_cast<int>(kSteps);
    problem.states.location = StateLocation::kPool;
    problem.stored_states = StoredStates::kEvery;
    problem.from_accepted = true;
    return problem;
  }

  VerifyProblem problem_;
  std::optional<DeviceBuffer> pool_;
  Tensor state_{};
};

// As a dense case whose states fill a table's pool.
VerifyCase states_for(const SlotTable& table) {
  VerifyProblem dense = table.problem();
  dense.varlen = false;
  dense.from_accepted = false;
  dense.stored_states = StoredStates::kLast;
  dense.states.location = StateLocation::kDense;
  dense.states.padding = Padding::kNone;
  return VerifyCase(dense, uniform(SlotTable::kSlots, 1), {.seed = seed()});
}

// Tokens, of packed requests that have at most these lengths.
VerifyCase tokens_for(const SlotTable& table, const CaseShape& shape, std::uint64_t more = 0) {
  VerifyProblem plain = table.problem();
  plain.from_accepted = false;
  plain.stored_states = StoredStates::kLast;
  plain.states.location = StateLocation::kDense;
  plain.states.padding = Padding::kNone;
  return VerifyCase(plain, shape, {.seed = seed() + more});
}

// Relative to the largest; infinite where only one is a number.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(a[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference / largest;
}

struct Round {
  std::vector<std::int64_t> bounds;    // of 3 requests
  std::vector<std::int64_t> accepted;  // of those
  std::vector<std::int64_t> slots;     // 3 x 6
};
const Round kRounds[] = {
    {{0, 4, 5, 11}, {1, 1, 1}, {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25}},
    {{0, 6, 6, 9}, {4, 1, 6}, {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25}},
    {{1, 2, 7, 11}, {2, 0, 3}, {31, 4, 5, 1, 7, 8, 0, 10, 11, 2, 13, 14, 30, 21, 22, 29, 24, 25}},
};

TEST_CASE("GdnVerifySteps.AGraphsReplaysFollowCountsSlotsAndBounds", "[gpu][verify]") {
  for (const VerifyProblem& base : problems_to_step()) {
    if (!base.states.has_initial) continue;
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      VerifyProblem problem = base;
      problem.states.index_dtype = problem.accepted_dtype = index_dtype;
      problem.cu_seqlens_dtype = index_dtype;
      const SlotTable table(problem), expected(problem);
      const VerifyCase states = states_for(table);
      const VerifyCase tokens = tokens_for(table, {.lengths = {4, 1, 6}});
      table.fill(states);
      expected.fill(states);
      const Numbers bounds(index_dtype, {4}, kRounds[0].bounds);
      const Numbers counts(index_dtype, {3}, kRounds[0].accepted);
      const Numbers slots(index_dtype, {3, 6}, kRounds[0].slots);
      VerifyArgs args = tokens.args();
      args.cu_seqlens = bounds.tensor();
      args.accepted = counts.tensor();
      args.states = {.in = table.state(), .indices = slots.tensor()};

      const gdn::Verify verify = verify_of(table.problem());
      const gdn::Decode decode = decode_of(table.problem());
      const DeviceStream stream = make_stream(gpu());
      const DeviceGraph graph =
          DeviceGraph::capture(stream, [&] { return verify.launch(stream.get(), args); }).value();
      for (const Round& round : kRounds) {
        bounds.set(round.bounds);
        counts.set(round.accepted);
        slots.set(round.slots);
        tokens.upload();
        graph.launch(stream).value();
        stream.synchronize().value();
        const GdnMemory outputs = tokens.download();

        tokens.upload();
        for (std::int64_t n = 0; n < 3; ++n) {
          const auto slot = [&](std::int64_t t) { return round.slots[idx(n * 6 + t)]; };
          Tensor from = expected.slot(slot(std::max<std::int64_t>(round.accepted[idx(n)] - 1, 0)));
          // A slot may be written before the loop is over: only the first step reads it.
          for (std::int64_t t = round.bounds[idx(n)]; t < round.bounds[idx(n) + 1]; ++t) {
            const Tensor to = expected.slot(slot(t - round.bounds[idx(n)]));
            decode.launch(stream.get(), step_args(tokens.args(), t, from, to)).value();
            from = to;
          }
        }
        stream.synchronize().value();
        INFO("problem " << table.problem().to_json() << ", seed " << seed());
        CHECK(first_difference(outputs, tokens.download()) == "");
        CHECK(table.pool().download() == expected.pool().download());
      }
    }
  }
}

// The path of all tokens at once finds the same states and writes the same slots as the other: its
// numbers differ by rounding alone.
TEST_CASE("GdnVerifySteps.AllTokensAtOnceFollowCountsSlotsAndBounds", "[gpu][verify]") {
  for (VerifyProblem base : problems_to_step()) {
    if (!base.states.has_initial) continue;
    base.round_each_token = false;
    const SlotTable table(base);
    const std::vector<gdn::Verify> verifies = on_every_path(table.problem());
    const VerifyCase states = states_for(table);
    const VerifyCase tokens = tokens_for(table, {.lengths = {4, 1, 6}});
    for (const Round& round : kRounds) {
      const Numbers bounds(DType::kI32, {4}, round.bounds);
      const Numbers counts(DType::kI32, {3}, round.accepted);
      const Numbers slots(DType::kI32, {3, 6}, round.slots);
      VerifyArgs args = tokens.args();
      args.cu_seqlens = bounds.tensor();
      args.accepted = counts.tensor();
      args.states = {.in = table.state(), .indices = slots.tensor()};
      std::vector<std::vector<double>> outputs, pools;
      for (const gdn::Verify& verify : verifies) {
        table.fill(states);
        tokens.upload();
        const DeviceStream stream = make_stream(gpu());
        verify.launch(stream.get(), args).value();
        stream.synchronize().value();
        const GdnMemory after = tokens.download();
        const auto bytes = tokens.bytes(after, GdnTensor::kO);
        outputs.push_back(
            from_bytes(base.output_dtype, std::vector<std::byte>(bytes.begin(), bytes.end())));
        pools.push_back(from_bytes(base.states.dtype, table.pool().download()));
      }
      for (std::size_t i = 1; i < verifies.size(); ++i) {
        INFO("configuration " << i << ", problem " << table.problem().to_json() << ", seed "
                              << seed());
        CHECK(largest_difference(outputs[0], outputs[i]) < 0.02);
        CHECK(largest_difference(pools[0], pools[i]) < 0.02);
      }
    }
  }
}

// What a request's row of outputs is expected to be.
enum class Outputs { kRight, kNan, kZero, kUntouched };

// One launch of three requests with these counts and slots.  `dropped`: steps of request 1 whose
// state is not kept.
void expect_outputs(const gdn::Verify& verify, const SlotTable& table,
                    const std::vector<std::int64_t>& accepted,
                    const std::vector<std::int64_t>& slots, Outputs expected,
                    const std::vector<std::int64_t>& dropped) {
  const VerifyProblem& problem = table.problem();
  const DType index_dtype = problem.states.index_dtype;
  const VerifyCase states = states_for(table);
  const VerifyCase tokens = tokens_for(table, {.lengths = {2, 3, 1}});
  const Numbers counts(problem.accepted_dtype, {3}, accepted);
  const Numbers indices(index_dtype, {3, 6}, slots);
  VerifyArgs args = tokens.args();
  args.accepted = counts.tensor();
  args.states = {.in = table.state(), .indices = indices.tensor()};
  args.states.scratch_slot = problem.states.padding == Padding::kScratch ? 31 : 0;
  table.fill(states);
  tokens.upload();
  const std::vector<std::byte> before = table.pool().download();
  const DeviceStream stream = make_stream(gpu());
  verify.launch(stream.get(), args).value();
  stream.synchronize().value();
  const GdnMemory after = tokens.download();
  INFO("problem " << problem.to_json() << ", seed " << seed());
  const auto all = [&](std::int64_t n, const auto& holds) {
    for (std::int64_t t = 0; t < tokens.length(n); ++t) {
      for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
        for (const float x : tokens.row_values(after, GdnTensor::kO, n, t, h, problem.value_dim)) {
          if (!holds(x)) return false;
        }
      }
    }
    return true;
  };
  const auto finite = [](float x) { return std::isfinite(x); };
  CHECK(all(0, finite));
  CHECK(all(2, finite));
  if (expected == Outputs::kRight) CHECK(all(1, finite));
  if (expected == Outputs::kNan) CHECK(all(1, [](float x) { return std::isnan(x); }));
  if (expected == Outputs::kZero) CHECK(all(1, [](float x) { return x == 0; }));
  if (expected == Outputs::kUntouched) {
    CHECK(same_bytes(std::span(after[tokens.row_at(GdnTensor::kO, 1, 0, 0).piece])
                         .subspan(tokens.row_at(GdnTensor::kO, 1, 0, 0).byte, 16),
                     std::vector<std::byte>(16, kPoison)));
  }
  // Slots that nobody may write are as they were.
  std::vector<bool> written(SlotTable::kSlots);
  for (const std::int64_t n : {0, 1, 2}) {
    for (std::int64_t t = 0; t < tokens.length(n); ++t) {
      const std::int64_t slot = slots[idx(n * 6 + t)];
      const bool drops = std::find(dropped.begin(), dropped.end(), t) != dropped.end();
      if (n == 1 && (expected != Outputs::kRight || drops)) continue;
      written[idx(slot)] = true;
    }
  }
  if (problem.states.padding == Padding::kScratch) written[31] = true;
  const std::size_t each = before.size() / idx(SlotTable::kSlots);
  for (std::int64_t slot = 0; slot < SlotTable::kSlots; ++slot) {
    INFO("slot " << slot);
    const std::vector<std::byte> now = table.bytes(slot);
    const bool same = same_bytes(now, std::span(before).subspan(idx(slot) * each, each));
    CHECK(same != written[idx(slot)]);
  }
}

void expect_outputs(const SlotTable& table, const std::vector<std::int64_t>& accepted,
                    const std::vector<std::int64_t>& slots, Outputs expected,
                    const std::vector<std::int64_t>& dropped = {}) {
  for (const gdn::Verify& verify : on_every_path(table.problem())) {
    expect_outputs(verify, table, accepted, slots, expected, dropped);
  }
}

const std::vector<std::int64_t> kSlots = {3,  4,  5,  6,  7,  8,  9,  10, 11,
                                          12, 13, 14, 20, 21, 22, 23, 24, 25};

TEST_CASE("GdnVerifySteps.CountsOutOfRangeTouchNothing", "[gpu][verify]") {
  VerifyProblem problem = small_verify();
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    problem.accepted_dtype = dtype;
    const SlotTable table(problem);
    expect_outputs(table, {1, 6, 2}, kSlots, Outputs::kRight);
    expect_outputs(table, {1, 0, 2}, kSlots, Outputs::kRight);
    for (const std::int64_t bad : {-1, 7, std::numeric_limits<std::int32_t>::max()}) {
      expect_outputs(table, {1, bad, 2}, kSlots, Outputs::kNan);
    }
    if (dtype == DType::kI64) {
      expect_outputs(table, {1, (std::int64_t{1} << 32) + 1, 2}, kSlots, Outputs::kNan);
    }
  }
}

// Also where only a later step's slot cannot be: nothing of the request is written before it.
TEST_CASE("GdnVerifySteps.SlotsOutOfThePoolTouchNothing", "[gpu][verify]") {
  const SlotTable table(small_verify());
  for (const std::size_t step : {0u, 1u, 2u}) {
    for (const std::int64_t bad : {std::int64_t{-1}, SlotTable::kSlots, std::int64_t{1} << 30}) {
      std::vector<std::int64_t> slots = kSlots;
      slots[6 + step] = bad;
      expect_outputs(table, {1, 2, 1}, slots, Outputs::kNan);
    }
  }
  std::vector<std::int64_t> slots = kSlots;
  slots[6 + 3] = -1;  // of a step that the request does not have
  expect_outputs(table, {1, 2, 1}, slots, Outputs::kRight);
}

TEST_CASE("GdnVerifySteps.PaddingOfRequestsAndOfSteps", "[gpu][verify]") {
  for (const Padding padding : {Padding::kSkip, Padding::kZero, Padding::kScratch}) {
    for (const PadIndex pad_index : {PadIndex::kNegative, PadIndex::kZero}) {
      VerifyProblem problem = small_verify();
      problem.states.location = StateLocation::kPool;
      problem.states.padding = padding;
      problem.states.pad_index = pad_index;
      const SlotTable table(problem);
      const std::int64_t pad = pad_index == PadIndex::kNegative ? -1 : 0;
      std::vector<std::int64_t> slots = kSlots;
      slots[6 + 2] = pad;  // a step that is not kept
      expect_outputs(table, {1, 2, 1}, slots, Outputs::kRight, {2});
      slots = kSlots;
      for (std::size_t t = 0; t < 6; ++t) slots[6 + t] = pad;
      expect_outputs(table, {1, 0, 1}, slots,
                     padding == Padding::kSkip   ? Outputs::kUntouched
                     : padding == Padding::kZero ? Outputs::kZero
                                                 : Outputs::kRight,
                     {0, 1, 2});
    }
  }
}

// Reading by a count, and keeping the last state only: where it was read, or elsewhere.
TEST_CASE("GdnVerifySteps.KeepsTheLastStateOfAcceptedOnes", "[gpu][verify]") {
  constexpr std::int64_t kTokens = 3, kRequests = 2, kSteps = 4;
  VerifyProblem problem = small_verify();
  problem.from_accepted = true;
  VerifyProblem plain = problem;
  plain.from_accepted = false;
  const VerifyCase states(plain, uniform(kRequests * kSteps, kTokens),
                          {.seed = seed(), .separate_out = true});
  const Numbers counts(DType::kI32, {kRequests}, {3, 1});
  const auto run_both = [&](bool in_place) {
    VerifyArgs args = states.args();
    for (Tensor* tensor : {&args.q, &args.k, &args.v, &args.gates.g, &args.gates.beta, &args.o}) {
      slice(tensor, 0, 0, kRequests);
    }
    // [8, ...] as [2, 4, ...].
    Tensor& in = args.states.in;
    const Tensor rows = in;
    in = {.data = rows.data,
          .dtype = rows.dtype,
          .rank = 5,
          .shape = {kRequests, kSteps, rows.shape[1], rows.shape[2], rows.shape[3]},
          .strides = {kSteps * rows.strides[0], rows.strides[0], rows.strides[1], rows.strides[2],
                      rows.strides[3]}};
    args.accepted = counts.tensor();
    slice(&args.states.out, 0, 0, kRequests);
    const Tensor out = args.states.out;
    if (in_place) args.states.out = {};
    const DeviceStream stream = make_stream(gpu());
    states.upload();
    verify_of(problem).launch(stream.get(), args).value();
    stream.synchronize().value();
    const GdnMemory verified = states.download();
    states.upload();
    const gdn::Decode decode = decode_of(problem);
    for (std::int64_t n = 0; n < kRequests; ++n) {
      Tensor from = row(at(in, 1, n == 0 ? 2 : 0), n);
      const Tensor to = in_place ? from : row(out, n);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        decode.launch(stream.get(), step_args(request(args, n), t, from, to)).value();
        from = to;
      }
    }
    stream.synchronize().value();
    CHECK(first_difference(verified, states.download()) == "");
  };
  run_both(true);
  run_both(false);
}

}  // namespace
}  // namespace cubinery::test
