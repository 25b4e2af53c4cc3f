// The references of prefill: the recurrence against another implementation's outputs, the chunked
// algebra against the recurrence, and what rounding its operands costs.
#include "templates/gdn_prefill_scan/gdn_prefill_ref.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cubinery/dtype.h"
#include "harness/data.h"
#include "harness/rounding.h"
#include "tests/catch.h"
#include "tests/golden.h"

namespace cubinery::test {
namespace {

using gdn::BetaMode;
using gdn::Decay;
using gdn::GateMode;
using gdn::PrefillRefHead;

constexpr auto kExact = [](double x) { return x; };
// What two orders of summation in double differ by, relative to the largest value.
constexpr double kReordered = 1e-12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// One with which GateDistribution::kQwen decays.
constexpr std::uint64_t kSeed = 2;
// What float arithmetic loses.
constexpr double kFloat = 1e-6;

struct Shape {
  int tokens = 130;
  int key_dim = 16;
  int value_dim = 32;
};
struct Modes {
  GateMode gate = GateMode::kLog;
  BetaMode beta = BetaMode::kGiven;
  bool use_qk_l2norm = false;
  Decay decay = Decay::kHead;
};

template <class Real>
struct Sequence {
  PrefillRefHead<Real> head{};
  std::vector<Real> state{};  // before the first token
};

// q, k and v are of `dtype`.
template <class Real>
Sequence<Real> make_sequence(const Shape& shape, const DataOptions& data, const Modes& modes = {},
                             DType dtype = DType::kF32) {
  Sequence<Real> sequence{.head = {.key_dim = shape.key_dim,
                                   .value_dim = shape.value_dim,
                                   .inputs = {.decay = modes.decay,
                                              .gate_mode = modes.gate,
                                              .beta_mode = modes.beta,
                                              .use_qk_l2norm = modes.use_qk_l2norm},
                                   .scale = 1 / std::sqrt(static_cast<Real>(shape.key_dim))}};
  PrefillRefHead<Real>& head = sequence.head;
  const bool raw = modes.use_qk_l2norm;
  RowSource q(data, DataStream::kQ, 0, 0, shape.key_dim, raw);
  RowSource k(data, DataStream::kK, 0, 0, shape.key_dim, raw);
  RowSource v(data, DataStream::kV, 0, 0, shape.value_dim, true);
  GateSource gates(modes.gate, modes.beta, data, 0, 0);
  head.a_log = gates.a_log();
  head.dt_bias.clear();
  for (int d = 0; d < head.gate_width(); ++d) head.dt_bias.push_back(gates.next_dt_bias());
  for (int t = 0; t < shape.tokens; ++t) {
    for (const float x : q.next()) head.q.push_back(rounded(dtype, x));
    for (const float x : k.next()) head.k.push_back(rounded(dtype, x));
    for (const float x : v.next()) head.v.push_back(rounded(dtype, x));
    for (int d = 0; d < head.gate_width() && modes.gate != GateMode::kNone; ++d) {
      head.gate.push_back(gates.next_gate());
    }
    if (modes.beta != BetaMode::kOne) head.beta.push_back(gates.next_beta());
  }
  Random random = random_of(data.seed, DataStream::kState, 0, 0);
  sequence.state.resize(static_cast<std::size_t>(shape.key_dim) *
                        static_cast<std::size_t>(shape.value_dim));
  for (Real& x : sequence.state) x = random.normal();
  return sequence;
}

template <class Real>
struct Outputs {
  std::vector<Real> o, state;
  friend bool operator==(const Outputs&, const Outputs&) = default;
};

template <class Real>
Outputs<Real> unwritten(const Sequence<Real>& sequence) {
  return {std::vector<Real>(sequence.head.v.size(), std::numeric_limits<Real>::quiet_NaN()),
          sequence.state};
}

template <class Real>
Outputs<Real> recurrence(const Sequence<Real>& sequence) {
  Outputs<Real> outputs = unwritten(sequence);
  gdn_prefill_ref(sequence.head, outputs.state.data(), outputs.o.data());
  return outputs;
}

template <class Real, class Round>
Outputs<Real> chunked(const Sequence<Real>& sequence, int chunk_size, Round round) {
  Outputs<Real> outputs = unwritten(sequence);
  gdn_prefill_chunked_ref(sequence.head, chunk_size, round, outputs.state.data(), outputs.o.data());
  return outputs;
}

// The largest difference over the largest value; NaN when a value is.
template <class Real>
double error_of(const std::vector<Real>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    if (std::isnan(difference)) return difference;
    worst = std::max(worst, difference);
    largest = std::max(largest, std::abs(expected[i]));
  }
  return largest == 0 ? worst : worst / largest;
}

void check_chunked(const Sequence<double>& sequence) {
  const Outputs<double> expected = recurrence(sequence);
  for (const int chunk_size : {16, 32, 64}) {
    INFO("chunks of " << chunk_size);
    const Outputs<double> outputs = chunked(sequence, chunk_size, kExact);
    CHECK(error_of(outputs.o, expected.o) <= kReordered);
    CHECK(error_of(outputs.state, expected.state) <= kReordered);
  }
}

// The gate distributions, keys of unit length with every correlation for the one that is hardest
// for the inverse.
std::vector<DataOptions> all_data() {
  std::vector<DataOptions> all;
  for (const GateDistribution gates : kGateDistributions)
    all.push_back({.seed = kSeed, .gates = gates});
  for (const double rho : {0.5, 0.9, 0.99})
    all.push_back({.seed = kSeed, .gates = GateDistribution::kInit, .key_correlation = rho});
  return all;
}

TEST_CASE("GdnPrefillRef.RecurrenceReproducesFlaGoldens", "[cpu]") {
  const auto all_tokens = [](const PrefillRefHead<double>& head, double* state, double* o) {
    gdn_prefill_ref(head, state, o);
  };
  check_gdn_goldens(all_tokens);
  check_kda_goldens(all_tokens);
}

TEST_CASE("GdnPrefillRef.ChunkedAlgebraReproducesFlaGoldens", "[cpu]") {
  for (const int chunk_size : {16, 32, 64}) {
    INFO("chunks of " << chunk_size);
    const auto by_chunks = [&](const PrefillRefHead<double>& head, double* state, double* o) {
      gdn_prefill_chunked_ref(head, chunk_size, kExact, state, o);
    };
    check_gdn_goldens(by_chunks);
    check_kda_goldens(by_chunks);
  }
}

TEST_CASE("GdnPrefillRef.ChunkedAlgebraIsTheRecurrence", "[cpu]") {
  for (const DataOptions& data : all_data()) {
    for (const int tokens : {0, 1, 15, 16, 17, 63, 64, 65, 130}) {
      INFO("gates " << static_cast<int>(data.gates) << ", correlation " << data.key_correlation
                    << ", tokens " << tokens);
      check_chunked(make_sequence<double>({.tokens = tokens}, data));
      check_chunked(make_sequence<double>({.tokens = tokens}, data, {.decay = Decay::kChannel}));
      check_chunked(make_sequence<double>({.tokens = tokens, .key_dim = 48, .value_dim = 16}, data,
                                          {.use_qk_l2norm = true}));
    }
  }
}

TEST_CASE("GdnPrefillRef.EveryModeAgrees", "[cpu]") {
  for (const GateMode gate :
       {GateMode::kNone, GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
    for (const BetaMode beta :
         {BetaMode::kOne, BetaMode::kGiven, BetaMode::kLogit, BetaMode::kDoubledLogit}) {
      for (const bool l2norm : {false, true}) {
        for (const GateDistribution gates : kGateDistributions) {
          INFO("gate mode " << static_cast<int>(gate) << ", beta mode " << static_cast<int>(beta)
                            << ", l2norm " << l2norm << ", gates " << static_cast<int>(gates));
          for (const Decay decay : {Decay::kHead, Decay::kChannel}) {
            check_chunked(make_sequence<double>({.tokens = 70}, {.seed = kSeed, .gates = gates},
                                                {gate, beta, l2norm, decay}));
          }
        }
      }
    }
  }
}

// Decays of 0 in front of, inside and at the end of chunks, several of them in one.
TEST_CASE("GdnPrefillRef.DecaysOfZeroForget", "[cpu]") {
  for (const GateMode mode : {GateMode::kAlpha, GateMode::kLog}) {
    Sequence<double> sequence = make_sequence<double>({}, {.seed = kSeed}, {.gate = mode});
    for (const std::size_t t : std::vector<std::size_t>{0, 5, 6, 7, 31, 40, 63, 64, 100}) {
      sequence.head.gate[t] = mode == GateMode::kAlpha ? 0.0 : -kInfinity;
    }
    check_chunked(sequence);

    // What was in front of token 100 is gone.
    Sequence<double> other = sequence;
    for (double& x : other.state) x = 3;
    CHECK(chunked(other, 64, kExact).state == chunked(sequence, 64, kExact).state);
  }
}

TEST_CASE("GdnPrefillRef.NanInAGateSurvives", "[cpu]") {
  Sequence<double> sequence = make_sequence<double>({}, {.seed = kSeed});
  const Outputs<double> expected = recurrence(sequence);
  sequence.head.gate[70] = NAN;
  const std::ptrdiff_t first = std::ptrdiff_t{70} * sequence.head.value_dim;
  const auto is_nan = [](double x) { return std::isnan(x); };
  for (const Outputs<double>& outputs : {recurrence(sequence), chunked(sequence, 32, kExact)}) {
    const auto broken = outputs.o.begin() + first;
    CHECK(std::all_of(broken, outputs.o.end(), is_nan));
    CHECK(std::all_of(outputs.state.begin(), outputs.state.end(), is_nan));
    CHECK(error_of(std::vector<double>(outputs.o.begin(), broken),
                   {expected.o.begin(), expected.o.begin() + first}) <= kReordered);
  }
}

TEST_CASE("GdnPrefillRef.TwoPiecesAreOne", "[cpu]") {
  const Sequence<double> sequence =
      make_sequence<double>({}, {.seed = kSeed, .gates = GateDistribution::kUndecayed});
  const Outputs<double> whole = recurrence(sequence);
  const Outputs<double> whole_chunked = chunked(sequence, 64, kExact);
  const int tokens = sequence.head.tokens();
  for (const int middle : {0, 1, 64, 100, 128, 130}) {
    INFO("split at " << middle);
    Outputs<double> pieces = unwritten(sequence);
    gdn_prefill_ref(sequence.head, 0, middle, pieces.state.data(), pieces.o.data());
    gdn_prefill_ref(sequence.head, middle, tokens, pieces.state.data(), pieces.o.data());
    CHECK(pieces == whole);

    pieces = unwritten(sequence);
    for (const auto& [first, last] : {std::pair(0, middle), std::pair(middle, tokens)}) {
      gdn_prefill_chunked_ref(sequence.head, 64, first, last, kExact, pieces.state.data(),
                              pieces.o.data());
    }
    if (middle % 64 == 0) {
      CHECK(pieces == whole_chunked);
    } else {
      CHECK(error_of(pieces.o, whole.o) <= kReordered);
      CHECK(error_of(pieces.state, whole.state) <= kReordered);
    }
  }
}

// Two tokens, read off the formulas of common/chunk/wy.h.
TEST_CASE("GdnPrefillRef.RecordOfTwoTokensByHand", "[cpu]") {
  const PrefillRefHead<double> head{.key_dim = 2,
                                    .value_dim = 1,
                                    .inputs = {.gate_mode = GateMode::kAlpha},
                                    .scale = 2,
                                    .q = {1, 0, 3, 5},
                                    .k = {1, 2, 4, 3},
                                    .v = {0, 0},
                                    .gate = {0.5, 0.25},
                                    .beta = {0.5, 0.125}};
  const gdn::ChunkRef<double> chunk = gdn::chunk_ref(head, 0, 2, kExact);
  const auto near = [](double x) { return Approx(x).epsilon(1e-14); };
  // k1.k0 = 10; L10 = 10 * 0.5; between the tokens lies a decay of 0.25.
  CHECK(chunk.gated_inverse[0] == 1);
  CHECK(chunk.gated_inverse[1] == 0);
  CHECK(chunk.gated_inverse[2] == near(-5 * 0.25));
  CHECK(chunk.gated_inverse[3] == 1);
  CHECK(chunk.attention[0] == near(2 * 1 * 0.5));
  CHECK(chunk.attention[1] == 0);
  CHECK(chunk.attention[2] == near(2 * 13 * 0.25 * 0.5));
  CHECK(chunk.attention[3] == near(2 * 27 * 0.125));
  CHECK(chunk.k_in[1] == near(0.125));
  CHECK(chunk.q_in[0] == near(2 * 0.5));
  CHECK(chunk.v_out[0] == near(0.25 * 0.5));
  CHECK(chunk.v_out[1] == near(0.125));
  CHECK(chunk.decay == near(0.125));
}

// Numbers that show each rounding, to multiples of 1/4, and that nothing else is rounded.
TEST_CASE("GdnPrefillRef.RoundingByHand", "[cpu]") {
  const PrefillRefHead<double> head{.key_dim = 1,
                                    .value_dim = 1,
                                    .inputs = {.gate_mode = GateMode::kAlpha},
                                    .scale = 1.1,
                                    .q = {2.1, 0.9},
                                    .k = {3.1, 1.1},
                                    .v = {11.02, 12.1},
                                    .gate = {0.5, 0.35},
                                    .beta = {0.7, 0.9}};
  double state = 1.3;
  double o[2] = {NAN, NAN};
  gdn_prefill_chunked_ref(
      head, 16, [](double x) { return std::round(4 * x) / 4; }, &state, o);
  // q 2 and 1, k 3 and 1, S 1.25.  T is 1 and -0.75 from -2.1 * 0.35, P 4.5 from 4.62, 0.75 from
  // 0.8085, 1 from 0.99.  The corrected values 11.02 - 0.5 * 3.75 and 12.1 - 0.175 * 1.25 are 9.25
  // and 12, so T's are 9.25 and 5.0625: for the output 9.25 and 5, for the state 0.35 * 0.7 and 0.9
  // of them, 2.25 and 4.5.
  CHECK(o[0] == Approx(1.1 * 0.5 * 2 * 1.25 + 4.5 * 9.25).epsilon(1e-14));
  CHECK(o[1] == Approx(1.1 * 0.175 * 1.25 + 0.75 * 9.25 + 5).epsilon(1e-14));
  CHECK(state == Approx(0.175 * 1.3 + 3 * 2.25 + 4.5).epsilon(1e-14));
}

// Each operand is rounded relative to itself and errors of many terms cancel in part, so that the
// result is off by about one rounding of the largest value.
TEST_CASE("GdnPrefillRef.RoundingCostsAboutOneUnit", "[cpu]") {
  struct Precision {
    DType dtype;
    double unit;  // the largest relative error of one rounding
  };
  for (const auto& [dtype, unit] :
       {Precision{DType::kBF16, 0x1p-8}, Precision{DType::kF16, 0x1p-11},
        Precision{DType::kF32, 0x1p-22}}) {
    for (const DataOptions& data : all_data()) {
      INFO("dtype " << static_cast<int>(dtype) << ", gates " << static_cast<int>(data.gates)
                    << ", correlation " << data.key_correlation);
      const Shape shape{.key_dim = 64};
      const Outputs<double> expected = recurrence(make_sequence<double>(shape, data, {}, dtype));
      const Sequence<float> sequence = make_sequence<float>(shape, data, {}, dtype);
      const Outputs<float> exact = chunked(sequence, 64, [](float x) { return x; });
      const Outputs<float> rounded =
          chunked(sequence, 64, [dtype = dtype](float x) { return rounded_operand(dtype, x); });
      CHECK(error_of(exact.o, expected.o) <= kFloat);
      CHECK(error_of(exact.state, expected.state) <= kFloat);
      CHECK(error_of(rounded.o, expected.o) <= 2 * unit + kFloat);
      CHECK(error_of(rounded.state, expected.state) <= 2 * unit + kFloat);
      CHECK(rounded.o != exact.o);
      CHECK(rounded.state != exact.state);
    }
  }
}

}  // namespace
}  // namespace cubinery::test
