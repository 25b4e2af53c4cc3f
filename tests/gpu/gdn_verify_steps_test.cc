// GDN verify against steps of decode, bit for bit; states of every step, and going on from the
// accepted ones.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "runtime/gdn/verify/paths.h"
#include "runtime/operator/tuning_context.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/numbers.h"
#include "tests/gpu/problem_sweeps.h"
#include "tests/gpu/verify_steps.h"

namespace cubinery::test::gdn_verify_steps_test {
namespace {

using gdn::BetaMode;
using gdn::GateMode;
using gdn::StateLocation;
using gdn::StoredStates;
using gdn::VerifyArgs;
using gdn::VerifyProblem;

// The default configurations of both operators sum in the same order.
gdn::Verify verify_of(const VerifyProblem& problem, std::size_t which = 0) {
  const Target target = target_of(gpu().context());
  const auto values = gdn::verify_portable().defaults(problem, target).at(which)->values();
  return gdn::Verify::create(gpu().context(), problem, target, values).value();
}

// What differs in numbers that kernels compute and in where they go: a cover of pairs.
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
  for (const GateMode mode :
       {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed, GateMode::kLowerBound}) {
    for (const gdn::StateLayout layout : kLayouts) {
      VerifyProblem& problem = problems.emplace_back(small_verify());
      problem.inputs.decay = gdn::Decay::kChannel;
      problem.inputs.gate_mode = mode;
      problem.states.layout = layout;
    }
  }
  // A norm sums up a head alike, whichever warps have its columns.
  for (const gdn::OutputNorm norm :
       {gdn::OutputNorm::kGatedRms, gdn::OutputNorm::kSigmoidGatedRms}) {
    for (const gdn::StateLayout layout : kLayouts) {
      for (const int value_dim : {48, 128}) {
        VerifyProblem& problem = problems.emplace_back(small_verify());
        problem.value_dim = value_dim;
        problem.states.layout = layout;
        problem.output_norm = norm;
        problem.output_dtype = DType::kF32;
      }
    }
  }
  return cover(problems);
}

// Those with each of these in a field.
template <class Set>
std::vector<VerifyProblem> problems_to_step(Set set) {
  std::vector<VerifyProblem> problems;
  for (VerifyProblem problem : problems_to_step()) {
    for (const bool second : {false, true}) {
      if (set(&problem, second)) problems.push_back(problem);
    }
  }
  return cover(problems);
}

// Both default kernels, in place and with every step's state.
TEST_CASE("GdnVerifySteps.BitsOfDecodeSteps", "[gpu][verify]") {
  constexpr std::int64_t kTokens = 5;
  const auto set_stored = [](VerifyProblem* problem, bool every) {
    problem->stored_states = every ? StoredStates::kEvery : StoredStates::kLast;
    return true;
  };
  for (const VerifyProblem& problem : problems_to_step(set_stored)) {
    const StoredStates stored = problem.stored_states;
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
        Tensor from = args.state;
        if (from.present()) from = row(from, n);
        for (std::int64_t t = 0; t < kTokens; ++t) {
          const Tensor to = every ? row(at(args.state_out, 1, t), n) : from;
          gdn::DecodeArgs step = step_args(request(args, n), t, from, to);
          if (t == 0 && !problem.states.has_initial) step.state = {};
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

// Verify, accept some tokens, verify on: what decoding only the accepted ones gives.  Dense states.
TEST_CASE("GdnVerifySteps.GoesOnFromAcceptedTokens", "[gpu][verify][sanitize]") {
  constexpr std::int64_t kTokens = 4, kRequests = 5;
  const std::vector<std::int64_t> accepted = {0, 4, 2, 3, 4};
  const auto set_accepted = [](VerifyProblem* problem, bool is_long) {
    problem->stored_states = StoredStates::kEvery;
    problem->accepted_dtype = is_long ? DType::kI64 : DType::kI32;
    return problem->states.has_initial;
  };
  for (const VerifyProblem& given : problems_to_step(set_accepted)) {
    const DType accepted_dtype = given.accepted_dtype;
    VerifyProblem problem = given;
    problem.accepted_dtype = DType::kI32;
    const VerifyCase drafts(problem, uniform(kRequests, kTokens), {.seed = seed()});
    const VerifyCase more(problem, uniform(kRequests, kTokens), {.seed = seed() + 1});
    const Numbers counts(accepted_dtype, {kRequests}, accepted);
    VerifyProblem on = problem;
    on.from_accepted = true;
    on.accepted_dtype = accepted_dtype;
    const VerifyArgs before = drafts.args();
    VerifyArgs args = more.args();
    args.accepted = counts.tensor();
    args.state = before.state_out;

    const DeviceStream stream = make_stream(gpu());
    verify_of(problem).launch(stream.get(), before).value();
    verify_of(on).launch(stream.get(), args).value();
    stream.synchronize().value();
    const GdnMemory verified = more.download();

    drafts.upload();
    more.upload();
    const gdn::Decode decode = decode_of(problem);
    for (std::int64_t n = 0; n < kRequests; ++n) {
      Tensor from = row(before.state, n);
      const auto step = [&](const VerifyArgs& tokens, std::int64_t t) {
        const Tensor to = row(at(tokens.state_out, 1, t), n);
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
  const auto set_indices = [](VerifyProblem* problem, bool is_long) {
    problem->states.index_dtype = is_long ? DType::kI64 : DType::kI32;
    problem->accepted_dtype = problem->cu_seqlens_dtype = problem->states.index_dtype;
    return problem->states.has_initial;
  };
  for (const VerifyProblem& problem : problems_to_step(set_indices)) {
    const DType index_dtype = problem.states.index_dtype;
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
    set_steps(table, counts, slots, &args);

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
      set_steps(table, counts, slots, &args);
      std::vector<std::vector<double>> outputs, pools;
      for (const gdn::Verify& verify : verifies) {
        table.fill(states);
        tokens.upload();
        const DeviceStream stream = make_stream(gpu());
        verify.launch(stream.get(), args).value();
        stream.synchronize().value();
        const GdnMemory after = tokens.download();
        const auto bytes = tokens.bytes(after, TensorId::kO);
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
                    const std::vector<std::int64_t>& dropped, const Padding& padding) {
  const VerifyProblem& problem = table.problem();
  const DType index_dtype = problem.states.index_dtype;
  const VerifyCase states = states_for(table);
  const VerifyCase tokens = tokens_for(table, {.lengths = {2, 3, 1}});
  const Numbers counts(problem.accepted_dtype, {3}, accepted);
  const Numbers indices(index_dtype, {3, 6}, slots);
  VerifyArgs args = tokens.args();
  set_steps(table, counts, indices, &args);
  padding.put_into(&args);
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
        for (const float x : tokens.row_values(after, TensorId::kO, n, t, h, problem.value_dim)) {
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
    CHECK(same_bytes(std::span(after[tokens.row_at(TensorId::kO, 1, 0, 0).piece])
                         .subspan(tokens.row_at(TensorId::kO, 1, 0, 0).byte, 16),
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
  if (padding.scratch) written[idx(*padding.scratch)] = true;
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
                    const std::vector<std::int64_t>& dropped = {}, const Padding& padding = {}) {
  for (const gdn::Verify& verify : on_every_path(table.problem())) {
    expect_outputs(verify, table, accepted, slots, expected, dropped, padding);
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
TEST_CASE("GdnVerifySteps.SlotsOutOfThePoolTouchNothing", "[gpu][verify][sanitize]") {
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

TEST_CASE("GdnVerifySteps.PaddingOfRequestsAndOfSteps", "[gpu][verify][sanitize]") {
  VerifyProblem problem = small_verify();
  problem.states.location = StateLocation::kPool;
  const SlotTable table(problem);
  for (const Padding& padding : every_padding(31)) {
    if (!padding.slot_id) continue;
    std::vector<std::int64_t> slots = kSlots;
    slots[6 + 2] = *padding.slot_id;  // a step that is not kept
    expect_outputs(table, {1, 2, 1}, slots, Outputs::kRight, {2}, padding);
    slots = kSlots;
    for (std::size_t t = 0; t < 6; ++t) slots[6 + t] = *padding.slot_id;
    const Outputs expected = padding.is_computed() ? Outputs::kRight
                             : padding.zero        ? Outputs::kZero
                                                   : Outputs::kUntouched;
    expect_outputs(table, {1, 0, 1}, slots, expected, {0, 1, 2}, padding);
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
    for (Tensor* tensor : {&args.q, &args.k, &args.v, &args.g, &args.beta, &args.o}) {
      slice(tensor, 0, 0, kRequests);
    }
    // [8, ...] as [2, 4, ...].
    Tensor& in = args.state;
    const Tensor rows = in;
    in = {.data = rows.data,
          .dtype = rows.dtype,
          .rank = 5,
          .shape = {kRequests, kSteps, rows.shape[1], rows.shape[2], rows.shape[3]},
          .strides = {kSteps * rows.strides[0], rows.strides[0], rows.strides[1], rows.strides[2],
                      rows.strides[3]}};
    args.accepted = counts.tensor();
    slice(&args.state_out, 0, 0, kRequests);
    const Tensor out = args.state_out;
    if (in_place) args.state_out = {};
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
}  // namespace cubinery::test::gdn_verify_steps_test
