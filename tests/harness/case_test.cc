// What tuning compares with: data, layouts and checks of one case.  The operators are played by the
// reference in float, on the host.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/check.h"
#include "harness/draw.h"
#include "harness/operands.h"
#include "harness/operators.h"
#include "harness/rounding.h"
#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/decode/args.h"
#include "tests/catch.h"
#include "tests/tuner/tiny.h"

namespace cubinery {
namespace {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::GateMode;
using gdn::PrefillArgs;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;

// A prefill by the words of cubinery/gdn_prefill.h, with every tensor in memory of the host.
class HostPrefill {
 public:
  HostPrefill(const GdnProblem& problem, const GdnArgs& args) : p_(problem), args_(args) {}

  void run() const {
    const std::int64_t sequences = p_.varlen ? args_.cu_seqlens.shape[0] - 1 : args_.q.shape[0];
    if (malformed(sequences)) return fill_rows({0, tensor_tokens()}, 0, NAN);
    for (std::int64_t n = 0; n < sequences; ++n) run_sequence(n);
  }

 private:
  struct Span {
    std::int64_t first, last;
  };

  static std::int64_t integer(const Tensor& x, std::int64_t i) {
    return load_integer(x.dtype,
                        static_cast<std::byte*>(x.data) + i * x.strides[0] * size_of(x.dtype));
  }
  bool heads_first() const { return p_.token_layout == gdn::TokenLayout::kBHTD; }
  bool has_batch() const { return args_.q.rank == 4; }
  std::int64_t tensor_tokens() const {
    return args_.q.shape[(has_batch() ? 1u : 0u) + (heads_first() ? 1u : 0u)];
  }

  Span tokens(std::int64_t n) const {
    if (p_.varlen) return {integer(args_.cu_seqlens, n), integer(args_.cu_seqlens, n + 1)};
    return {0, tensor_tokens()};
  }
  bool malformed(std::int64_t sequences) const {
    if (!p_.varlen) return false;
    bool bad = tokens(0).first < 0 || integer(args_.cu_seqlens, sequences) > tensor_tokens();
    for (std::int64_t n = 0; n < sequences; ++n) bad |= tokens(n).last < tokens(n).first;
    return bad;
  }

  std::byte* row(const Tensor& x, std::int64_t n, std::int64_t t, std::int64_t h) const {
    std::vector<std::int64_t> index{t, h};
    if (heads_first()) std::swap(index[0], index[1]);
    if (has_batch()) index.insert(index.begin(), p_.varlen ? 0 : n);
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * x.strides[d];
    return static_cast<std::byte*>(x.data) + at * size_of(x.dtype);
  }

  void append(const Tensor& x, std::int64_t n, std::int64_t h, int heads, int width,
              std::vector<float>* to) const {
    if (!x.present()) return;
    const Span span = tokens(n);
    for (std::int64_t t = span.first; t < span.last; ++t) {
      const std::byte* const from = row(x, n, t, h / (p_.heads.count() / heads));
      for (int d = 0; d < width; ++d) to->push_back(load(x.dtype, from + d * size_of(x.dtype)));
    }
  }

  std::byte* matrix(const Tensor& x, std::int64_t r, std::int64_t h, int i, int j) const {
    const bool kv = p_.states.layout == StateLayout::kKV;
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

  bool padded(std::int64_t slot) const {
    if (!args_.pad_slot_id) return false;
    return *args_.pad_slot_id < 0 ? slot < 0 : slot == *args_.pad_slot_id;
  }

  void run_sequence(std::int64_t n) const {
    std::int64_t read = n, write = n;
    if (p_.states.location == StateLocation::kPool) {
      read = write = integer(args_.state_indices, n);
      if (args_.state_out_indices.present()) write = integer(args_.state_out_indices, n);
      if (padded(read) && !args_.scratch_slot) {
        if (args_.zero_padding) fill_rows(tokens(n), n, 0);
        return;
      }
      const std::int64_t scratch = args_.scratch_slot.value_or(0);
      if (padded(read)) read = write = scratch;
      const bool drops = padded(write) && !args_.scratch_slot;
      if (padded(write)) write = scratch;
      const std::int64_t slots = args_.state.shape[0];
      if (read < 0 || read >= slots || write < 0 || write >= slots) {
        return fill_rows(tokens(n), n, NAN);
      }
      if (drops) write = kNowhere;
    }
    if (!has_room(n)) return fill_rows(tokens(n), n, NAN);
    for (std::int64_t h = 0; h < p_.heads.count(); ++h) run_head(n, h, read, write);
  }

  // Offset or slot of checkpoint `i` of a sequence.
  static std::int64_t place(const Tensor& x, std::int64_t n, std::int64_t i) {
    const std::int64_t at = n * x.strides[0] + i * x.strides[1];
    return load_integer(x.dtype, static_cast<std::byte*>(x.data) + at * size_of(x.dtype));
  }
  // Calls f(offset, slot) for those that there are.
  void for_each_offset(std::int64_t n,
                       const std::function<void(std::int64_t, std::int64_t)>& f) const {
    if (p_.checkpoints != Checkpoints::kAt) return;
    for (std::int64_t i = 0; i < args_.checkpoint_offsets.shape[1]; ++i) {
      const std::int64_t offset = place(args_.checkpoint_offsets, n, i);
      const std::int64_t slot = place(args_.checkpoint_slots, n, i);
      if (offset > 0 && slot >= 0 && !padded(slot)) f(offset, slot);
    }
  }

  // For its checkpoints.
  bool has_room(std::int64_t n) const {
    bool fits = true;
    for_each_offset(n, [&](std::int64_t offset, std::int64_t slot) {
      const std::int64_t every = args_.checkpoint_every.value_or(p_.checkpoint_every);
      fits &= offset % every == 0 && offset <= tokens(n).last - tokens(n).first &&
              slot < args_.checkpoints.shape[0];
    });
    if (p_.checkpoints == Checkpoints::kAt) return fits;
    if (!args_.checkpoint_cu_starts.present()) return true;
    const std::int64_t first = integer(args_.checkpoint_cu_starts, n);
    const std::int64_t end = integer(args_.checkpoint_cu_starts, n + 1);
    return first >= 0 && end <= args_.checkpoints.shape[0] &&
           end - first >= checkpoints_of(p_, tokens(n).last - tokens(n).first);
  }

  void fill_rows(const Span& span, std::int64_t n, float value) const {
    for (std::int64_t t = span.first; t < span.last; ++t) {
      for (std::int64_t h = 0; h < p_.heads.count(); ++h) {
        std::byte* const to = row(args_.o, n, t, h);
        for (int d = 0; d < p_.value_dim; ++d) {
          store(p_.output_dtype, to + d * size_of(p_.output_dtype), value);
        }
      }
    }
  }

  void run_head(std::int64_t n, std::int64_t h, std::int64_t read, std::int64_t write) const {
    gdn::PrefillRefHead<float> head{
        .key_dim = p_.key_dim,
        .value_dim = p_.value_dim,
        .inputs = p_.inputs,
        .scale = args_.scale.value_or(1 / std::sqrt(static_cast<float>(p_.key_dim)))};
    append(args_.q, n, h, p_.heads.q, p_.key_dim, &head.q);
    append(args_.k, n, h, p_.heads.k, p_.key_dim, &head.k);
    append(args_.v, n, h, p_.heads.v, p_.value_dim, &head.v);
    append(args_.g, n, h, p_.heads.count(), head.gate_width(), &head.gate);
    append(args_.beta, n, h, p_.heads.count(), 1, &head.beta);
    const auto of_head = [&](const Tensor& x, std::int64_t d) {
      return load(x.dtype,
                  static_cast<std::byte*>(x.data) + (h * x.strides[0] + d) * size_of(x.dtype));
    };
    if (args_.A_log.present()) head.a_log = of_head(args_.A_log, 0);
    if (args_.dt_bias.present()) head.dt_bias.clear();
    for (int d = 0; args_.dt_bias.present() && d < head.gate_width(); ++d) {
      head.dt_bias.push_back(of_head(args_.dt_bias, d));
    }
    head.lower_bound = args_.lower_bound.value_or(0);
    std::vector<float> state(idx(p_.key_dim * p_.value_dim)), o(head.v.size());
    const Tensor& flags = args_.has_initial_state;
    const bool starts = !flags.present() || integer(flags, n) != 0;
    for (int i = 0; i < p_.key_dim && p_.states.has_initial && starts; ++i) {
      for (int j = 0; j < p_.value_dim; ++j) {
        state[idx(i * p_.value_dim + j)] =
            load(p_.states.dtype, matrix(args_.state, read, h, i, j));
      }
    }
    std::int64_t kept = 0;
    if (p_.checkpoints != Checkpoints::kNone && p_.checkpoints != Checkpoints::kAt) {
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
      for_each_offset(n, [&](std::int64_t offset, std::int64_t slot) {
        if (offset == t + 1) put(args_.checkpoints, slot, h, state);
      });
      norm(n, h, tokens(n).first + t, o.data() + t * p_.value_dim);
      std::byte* to = row(args_.o, n, tokens(n).first + t, h);
      for (int d = 0; d < p_.value_dim; ++d) {
        store(p_.output_dtype, to + d * size_of(p_.output_dtype), o[idx(t * p_.value_dim + d)]);
      }
    }
    if (!p_.states.store || write == kNowhere) return;
    put(args_.state_out.present() ? args_.state_out : args_.state, write, h, state);
  }

  void norm(std::int64_t n, std::int64_t h, std::int64_t t, float* o) const {
    if (p_.output_norm == gdn::OutputNorm::kNone) return;
    std::vector<float> z, weight;
    for (int d = 0; d < p_.value_dim; ++d) {
      z.push_back(load(args_.z.dtype, row(args_.z, n, t, h) + d * size_of(args_.z.dtype)));
      const Tensor& w = args_.norm_weight;
      weight.push_back(
          load(w.dtype, static_cast<std::byte*>(w.data) + d * w.strides[0] * size_of(w.dtype)));
    }
    gdn::gated_rms_ref(p_.output_norm, weight, z, args_.norm_eps.value_or(1e-6f), o);
  }

  const GdnProblem& p_;
  const GdnArgs& args_;
};

constexpr int kChunk = 16;

// What HostPrefill makes of a case.
GdnMemory play(const GdnCase& data) {
  GdnMemory memory = data.memory();
  const GdnArgs args = data.args(addresses(&memory));
  HostPrefill(data.problem(), args).run();
  return memory;
}

// The same, but that o stays as it was.
GdnMemory play_states(const GdnCase& data) {
  GdnMemory memory = play(data);
  const auto o = static_cast<std::size_t>(TensorId::kO);
  memory[o] = data.memory()[o];
  return memory;
}

void check_plays(const GdnCase& data) {
  const PrefillProblem& problem = data.problem();
  INFO(problem.to_json() << ", placement " << static_cast<int>(data.options().placement));
  // Of channels it is a decode's or a verification's: no prefill takes them yet.
  REQUIRE((problem.check().ok() || problem.inputs.decay == gdn::Decay::kChannel));
  const GdnVerdict verdict = data.check(play(data), data.references());
  CHECK(verdict.errors.o.ok());
  CHECK(verdict.errors.o.magnitude > 0);
  CHECK(verdict.errors.state.ok());
  CHECK((verdict.errors.state.magnitude > 0) == problem.states.store);
  CHECK(verdict.errors.checkpoints.ok());
  CHECK((verdict.errors.checkpoints.magnitude > 0) == (problem.checkpoints != Checkpoints::kNone));
  CHECK(verdict.fault == "");
}

void check_plays(const PrefillProblem& problem, const DataOptions& options = {}) {
  check_plays(check_case(problem, options, kChunk));
}

void check_plays_with(const PrefillProblem& problem, CaseOptions options) {
  options.chunk_size = kChunk;
  check_plays(GdnCase(problem, {.lengths = check_lengths(problem, kChunk)}, options));
}

void find_writes_around(const GdnCase& data, const GdnMemory& right, const TensorInfo& info) {
  const auto i = static_cast<std::size_t>(info.id);
  REQUIRE(right[i].size() > 2 * kGuardBytes);
  for (const std::size_t byte :
       {std::size_t{0}, kGuardBytes - 1, right[i].size() - kGuardBytes, right[i].size() - 1}) {
    GdnMemory changed = right;
    changed[i][byte] = std::byte{0};
    INFO(info.name << ", byte " << byte);
    const GdnVerdict verdict = data.check(changed);
    CHECK(verdict.errors.ok());
    const auto at = static_cast<std::ptrdiff_t>(byte) - std::ptrdiff_t{kGuardBytes};
    CHECK(verdict.fault == "writes in or around " + std::string(info.name) + ", byte " +
                               std::to_string(at) + " of " +
                               std::to_string(right[i].size() - 2 * kGuardBytes) +
                               ", where no sequence may");
  }
}

TEST_CASE("GdnCase.EveryLayout", "[cpu]") {
  for (const bool varlen : {false, true}) {
    for (const auto tokens : {gdn::TokenLayout::kBTHD, gdn::TokenLayout::kBHTD}) {
      for (const StateLayout states : {StateLayout::kKV, StateLayout::kVK}) {
        PrefillProblem problem = test::tiny_prefill();
        problem.varlen = varlen;
        problem.token_layout = tokens;
        problem.states.layout = states;
        problem.cu_seqlens_dtype = varlen ? DType::kI64 : DType::kI32;
        check_plays(problem);
      }
    }
  }
}

TEST_CASE("GdnCase.EveryModeOfGatesAndStates", "[cpu]") {
  for (const GateMode mode :
       {GateMode::kNone, GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
    PrefillProblem problem = test::tiny_prefill();
    problem.inputs.gate_mode = mode;
    problem.inputs.use_qk_l2norm = true;
    check_plays(problem);
  }
  for (const BetaMode mode :
       {BetaMode::kOne, BetaMode::kGiven, BetaMode::kLogit, BetaMode::kDoubledLogit}) {
    PrefillProblem problem = test::tiny_prefill();
    problem.inputs.beta_mode = mode;
    problem.states.dtype = DType::kBF16;
    check_plays(problem);
  }
  for (const bool initial : {false, true}) {
    for (const bool store : {false, true}) {
      PrefillProblem problem = test::tiny_prefill();
      problem.states.has_initial = initial;
      problem.states.store = store;
      check_plays(problem);
    }
  }
}

TEST_CASE("GdnCase.DecaysOfChannelsAndLowerBounds", "[cpu]") {
  for (const gdn::Decay decay : {gdn::Decay::kHead, gdn::Decay::kChannel}) {
    for (const GateMode mode :
         {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed, GateMode::kLowerBound}) {
      PrefillProblem problem = test::tiny_prefill();
      problem.inputs.decay = decay;
      problem.inputs.gate_mode = mode;
      problem.inputs.dt_bias_dtype = DType::kBF16;
      check_plays(problem);
      problem.varlen = true;
      for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                        Placement::kRank4, Placement::kUnaligned}) {
        problem.token_layout =
            mode == GateMode::kAlpha ? gdn::TokenLayout::kBHTD : gdn::TokenLayout::kBTHD;
        CaseOptions options{.placement = placement};
        options.lower_bound = -2;
        const GdnCase data(problem, {.lengths = {5, 0, 3}}, options);
        check_plays(data);
        GdnMemory memory = data.memory();
        const GdnArgs args = data.args(addresses(&memory));
        CHECK(args.lower_bound.has_value() == (mode == GateMode::kLowerBound));
        CHECK(args.g.rank ==
              (placement == Placement::kRank4 ? 3 : 2) + (decay == gdn::Decay::kHead ? 0 : 1));
      }
    }
  }
}

// Channels have numbers of their own; the first one's are those of a head.
TEST_CASE("GdnCase.ChannelsDecayEachByItself", "[cpu]") {
  PrefillProblem problem = test::tiny_prefill();
  problem.inputs.gate_mode = GateMode::kLowerBound;
  const CaseOptions options{.gates = GateDistribution::kInit};
  const GdnCase one(problem, {.lengths = {4}}, options);
  problem.inputs.decay = gdn::Decay::kChannel;
  const GdnCase each(problem, {.lengths = {4}}, options);
  const int channels = problem.key_dim;
  const std::vector<float> first = each.row_values(each.memory(), TensorId::kG, 0, 0, 1, channels);
  CHECK(first[0] == one.row_values(one.memory(), TensorId::kG, 0, 0, 1, 1)[0]);
  CHECK(first[0] != first[1]);
  const auto head = each.head<double>(0, 1, 0, 4);
  CHECK((head.gate.size() == idx(4 * channels) && head.dt_bias.size() == idx(channels)));
  CHECK(head.dt_bias[0] == one.head<double>(0, 1, 0, 4).dt_bias[0]);
  CHECK((head.dt_bias[0] != head.dt_bias[1] && head.lower_bound == -5));
}

TEST_CASE("GdnCase.EveryKindOfPadding", "[cpu]") {
  for (const Padding& padding : every_padding(0)) {
    for (const bool varlen : {false, true}) {
      PrefillProblem problem = test::tiny_prefill();
      problem.varlen = varlen;
      problem.states.location = StateLocation::kPool;
      problem.states.index_dtype = varlen ? DType::kI64 : DType::kI32;
      problem.checkpoints = Checkpoints::kBefore;
      problem.checkpoint_every = kChunk;
      check_plays_with(problem, {.padding = padding, .padded = 1});
    }
  }
}

TEST_CASE("GdnCase.SequencesThatStartFromZero", "[cpu]") {
  for (const bool pool : {false, true}) {
    for (const std::int64_t every : {1, 2, 3}) {
      PrefillProblem problem = test::tiny_prefill();
      problem.varlen = pool;
      if (pool) problem.states.location = StateLocation::kPool;
      check_plays_with(problem, {.separate_out = every == 2, .fresh_every = every});
    }
  }
  // Whose state nobody may read.
  const GdnCase data(test::tiny_prefill(), uniform(4, 5), {.fresh_every = 2});
  CHECK(std::isnan(data.matrix_values<float>(data.memory(), TensorId::kState, 1, 0)[0]));
  CHECK_FALSE(std::isnan(data.matrix_values<float>(data.memory(), TensorId::kState, 0, 0)[0]));
  GdnMemory memory = data.memory();
  GdnArgs args = data.args(addresses(&memory));
  args.has_initial_state = {};
  HostPrefill(data.problem(), args).run();
  CHECK_FALSE(data.check(memory).ok());
}

TEST_CASE("GdnCase.CheckpointsOfBothKinds", "[cpu]") {
  for (const bool varlen : {false, true}) {
    for (const Checkpoints when : {Checkpoints::kBefore, Checkpoints::kAfter}) {
      PrefillProblem problem = test::tiny_prefill();
      problem.varlen = varlen;
      problem.checkpoints = when;
      problem.checkpoint_every = 2 * kChunk;
      check_plays(problem);
      check_plays_with(problem, {.checkpoint_every = 4 * kChunk});
    }
  }
}

TEST_CASE("GdnCase.CheckpointsAtOffsets", "[cpu]") {
  for (const bool varlen : {false, true}) {
    for (const std::int64_t count : {1, 2, 3}) {
      PrefillProblem problem = test::tiny_prefill();
      problem.varlen = varlen;
      problem.checkpoints = Checkpoints::kAt;
      problem.checkpoint_every = kChunk;
      problem.states.index_dtype = varlen ? DType::kI64 : DType::kI32;
      check_plays_with(problem, {.offsets = count});
      check_plays_with(
          problem,
          {.placement = Placement::kUnaligned, .checkpoint_every = 2 * kChunk, .offsets = count});
      problem.states.location = StateLocation::kPool;
      check_plays(problem);
      for (const Padding& padding : every_padding(0)) {
        for (const bool elsewhere : {false, true}) {
          check_plays_with(problem, {.separate_out = elsewhere,
                                     .write_indices = count == 2,
                                     .padding = padding,
                                     .padded = 1,
                                     .offsets = count,
                                     .checkpoints_in_pool = true});
        }
      }
    }
  }
}

// Of three sequences the second has another offset or slot.
TEST_CASE("GdnCase.OffsetsThatCannotBe", "[cpu]") {
  PrefillProblem problem = test::tiny_prefill();
  problem.checkpoints = Checkpoints::kAt;
  problem.checkpoint_every = kChunk;
  const CaseOptions good{
      .offsets = 1, .checkpoint_offsets = {16, 32, 48}, .checkpoint_slots = {1, 2, 0}};
  const GdnCase data(problem, uniform(3, 50), good);
  struct Second {
    std::int64_t offset, slot;
    RowKind kind;
  };
  constexpr RowKind kBad = RowKind::kInvalid, kGood = RowKind::kComputed;
  for (const Second& second :
       {Second{8, 2, kBad}, Second{64, 2, kBad}, Second{32, 6, kBad}, Second{8, 100, kBad},
        Second{0, 100, kGood}, Second{-8, 2, kGood}, Second{64, -1, kGood}, Second{48, 5, kGood}}) {
    INFO(second.offset << " in " << second.slot);
    CaseOptions options = good;
    options.checkpoint_offsets[1] = second.offset;
    options.checkpoint_slots[1] = second.slot;
    const GdnCase one(problem, uniform(3, 50), options);
    CHECK(one.row(0).kind == kGood);
    CHECK(one.row(1).kind == second.kind);
    CHECK(one.check(play(one)).ok());
    GdnMemory other = play(data);  // another state is kept, or one that should not be
    for (const TensorId tensor : {TensorId::kCheckpointOffsets, TensorId::kCheckpointSlots}) {
      other[index_of(tensor)] = one.memory()[index_of(tensor)];
    }
    CHECK_FALSE(one.check(other).ok());
  }
}

TEST_CASE("GdnCase.FindsWritesAroundOffsets", "[cpu]") {
  PrefillProblem problem = test::tiny_prefill();
  problem.checkpoints = Checkpoints::kAt;
  problem.checkpoint_every = kChunk;
  const GdnCase data(problem, uniform(2, 40), {.placement = Placement::kUnaligned});
  const GdnMemory right = play(data);
  REQUIRE(data.check(right).ok());
  for (const TensorId tensor :
       {TensorId::kCheckpoints, TensorId::kCheckpointOffsets, TensorId::kCheckpointSlots}) {
    find_writes_around(data, right, info_of(tensor));
  }
}

TEST_CASE("GdnCase.EveryDistribution", "[cpu]") {
  for (const GateDistribution gates : kGateDistributions) {
    PrefillProblem problem = test::tiny_prefill();
    problem.varlen = true;
    check_plays(problem, {.seed = 6, .gates = gates, .key_correlation = 0.9});
  }
}

TEST_CASE("GdnCase.DecodeIsPackedTokens", "[cpu]") {
  gdn::DecodeProblem problem;
  problem.key_dim = problem.value_dim = 32;
  problem.states.location = StateLocation::kPool;
  problem.inputs.gate_mode = GateMode::kComputed;
  const GdnCase data = check_case(small_problem(as_prefill(problem)), {}, 0);
  GdnMemory memory = data.memory();
  const gdn::DecodeArgs step = as_decode(data.args(addresses(&memory)));
  CHECK(step.q.rank == 3);
  CHECK(step.q.shape[0] == 6);
  CHECK(step.g.rank == 2);
  CHECK(step.state_indices.shape[0] == 6);
  CHECK(step.A_log.present());
  const GdnVerdict verdict = data.check(play(data));
  CHECK(verdict.errors.o.ok());
  CHECK(verdict.errors.state.ok());
  CHECK(verdict.errors.state.magnitude > 0);
  CHECK(verdict.fault == "");
}

TEST_CASE("GdnCase.DecodeOfRank4HasOneToken", "[cpu]") {
  const gdn::DecodeProblem problem;
  const GdnCase data(as_prefill(problem), uniform(5, 1), {.placement = Placement::kRank4});
  GdnMemory memory = data.memory();
  const GdnArgs packed = data.args(addresses(&memory));
  const gdn::DecodeArgs step = as_decode(packed);
  REQUIRE(step.q.rank == 4);
  CHECK(step.q.shape[0] == 5);
  CHECK(step.q.shape[1] == 1);
  CHECK(step.q.shape[2] == problem.heads.q);
  CHECK(step.q.strides[0] == packed.q.strides[1]);
  CHECK(step.q.strides[0] == problem.heads.q * problem.key_dim + 16);
  REQUIRE(step.g.rank == 3);
  CHECK(step.g.shape[0] == 5);
  CHECK(step.g.shape[1] == 1);
  CHECK(step.A_log.rank == 0);
}

TEST_CASE("GdnCase.ADecodeMayHaveANorm", "[cpu]") {
  gdn::DecodeProblem problem;
  problem.key_dim = problem.value_dim = 32;
  problem.output_norm = gdn::OutputNorm::kGatedRms;
  problem.norm_weight_dtype = DType::kBF16;
  for (const Placement placement : {Placement::kContiguous, Placement::kUnaligned}) {
    for (const std::optional<float> eps : {std::optional<float>(), std::optional(0.5f)}) {
      CaseOptions options{.placement = placement, .norm_eps = eps, .chunk_size = 0};
      const GdnCase data(small_problem(as_prefill(problem)), uniform(5, 1), options);
      GdnMemory memory = data.memory();
      const gdn::DecodeArgs step = as_decode(data.args(addresses(&memory)));
      CHECK((step.z.rank == 3 && step.z.shape[0] == 5 && step.norm_weight.shape[0] == 32));
      CHECK(step.norm_eps == eps);
      const GdnVerdict verdict = data.check(play(data));
      CHECK(verdict.errors.o.ok());
      CHECK(verdict.fault == "");
    }
  }
  // Without it the outputs are others.
  const GdnProblem normed = small_problem(as_prefill(problem));
  const GdnCase data(normed, uniform(5, 1), {.chunk_size = 0});
  const GdnCase plain(static_cast<const PrefillProblem&>(normed), uniform(5, 1), {.chunk_size = 0});
  GdnMemory after = play(plain);
  const auto weight = static_cast<std::size_t>(TensorId::kNormWeight);
  after[weight] = data.memory()[weight];
  const auto z = static_cast<std::size_t>(TensorId::kZ);
  after[z] = data.memory()[z];
  CHECK_FALSE(data.check(after).errors.o.ok());
}

// By the words of gdn_decode.h: the convolution's outputs, rounded, are q, k and v of a decode.
GdnMemory play_convolved(const GdnCase& data) {
  const GdnProblem& p = data.problem();
  GdnMemory memory = data.memory();
  GdnArgs args = data.args(addresses(&memory));
  const auto element = [](const Tensor& x, std::int64_t i, std::int64_t j, std::int64_t k) {
    const std::size_t first = x.rank == 3 ? 0u : 1u;
    const std::int64_t at =
        (first == 0 ? i * x.strides[0] : 0) + j * x.strides[1 - first] + k * x.strides[2 - first];
    return static_cast<std::byte*>(x.data) + at * size_of(x.dtype);
  };
  const std::int64_t channels = args.conv_weight.shape[0], width = p.conv.width;
  std::vector<float> rows(idx(data.sequences() * channels));
  for (std::int64_t n = 0; n < data.sequences(); ++n) {
    const Row row = data.row(n);
    for (std::int64_t c = 0; c < channels && row.runs(); ++c) {
      std::vector<float> window;
      for (std::int64_t i = 0; i < args.conv_state.shape[2]; ++i) {
        window.push_back(load(p.conv.state_dtype, element(args.conv_state, row.read, c, i)));
      }
      window.push_back(load(p.dtype, element(args.x, 0, n, c)));
      float sum = p.conv.has_bias
                      ? load(p.conv.weight_dtype,
                             static_cast<std::byte*>(args.conv_bias.data) +
                                 c * args.conv_bias.strides[0] * size_of(p.conv.weight_dtype))
                      : 0;
      for (std::int64_t i = 0; i < width; ++i) {
        const float tap = load(p.conv.weight_dtype, element(args.conv_weight, 0, c, i));
        sum += tap * window[window.size() - idx(width - i)];
      }
      const bool is_silu = p.conv.activation == gdn::Activation::kSilu;
      rows[idx(n * channels + c)] = rounded(p.dtype, is_silu ? sum / (1 + std::exp(-sum)) : sum);
      const Tensor& written = args.conv_state_out.present() ? args.conv_state_out : args.conv_state;
      for (std::int64_t i = 0; i < written.shape[2] && row.writes(); ++i) {
        store(p.conv.state_dtype, element(written, row.write, c, i), window[idx(i + 1)]);
      }
    }
  }
  std::int64_t first = 0;
  const bool has_batch = args.o.rank == 4;
  const auto slice = [&](int heads, int dim) {
    Tensor x =
        Tensor::contiguous(rows.data() + first, DType::kF32, {1, data.sequences(), heads, dim});
    x.strides[0] = x.strides[1] = channels;
    first += std::int64_t{heads} * dim;
    if (has_batch) return x;
    x = Tensor::contiguous(x.data, DType::kF32, {data.sequences(), heads, dim});
    x.strides[0] = channels;
    return x;
  };
  args.q = slice(p.heads.q, p.key_dim);
  args.k = slice(p.heads.k, p.key_dim);
  args.v = slice(p.heads.v, p.value_dim);
  GdnProblem plain = p;
  plain.conv = {};
  HostPrefill(plain, args).run();
  return memory;
}

gdn::DecodeProblem convolved_problem() {
  gdn::DecodeProblem problem;
  problem.key_dim = 16;
  problem.value_dim = 32;
  problem.conv.width = 4;
  problem.states.location = StateLocation::kPool;
  return problem;
}

TEST_CASE("GdnCase.ADecodeMayHaveAConvolution", "[cpu]") {
  for (const Placement placement :
       {Placement::kContiguous, Placement::kPackedRows, Placement::kTransposedHeads,
        Placement::kRank4, Placement::kUnaligned}) {
    for (const auto layout : {gdn::ConvStateLayout::kColumns, gdn::ConvStateLayout::kChannels}) {
      for (const bool other : {false, true}) {
        gdn::DecodeProblem problem = convolved_problem();
        problem.conv.state_layout = layout;
        problem.conv.has_bias = problem.conv.whole_window = other;
        problem.conv.state_dtype = other ? DType::kF32 : DType::kBF16;
        if (other) problem.conv.activation = gdn::Activation::kNone;
        const CaseOptions options{.placement = placement,
                                  .slot_gap = other ? 20 : 0,
                                  .separate_out = other,
                                  .write_indices = other,
                                  .padding = {.slot_id = -1, .zero = true},
                                  .padded = 1,
                                  .chunk_size = 0};
        const GdnCase data(small_problem(as_prefill(problem)), uniform(5, 1), options);
        INFO("placement " << static_cast<int>(placement) << ", other " << other);
        GdnMemory memory = data.memory();
        const gdn::DecodeArgs step = as_decode(data.args(addresses(&memory)));
        CHECK_FALSE((step.q.present() || step.k.present() || step.v.present()));
        CHECK((step.x.shape[0] == 5 && step.conv_state_out.present() == other));
        const GdnVerdict verdict = data.check(play_convolved(data));
        CHECK(verdict.errors.o.ok());
        CHECK(verdict.errors.state.ok());
        CHECK(verdict.fault == "");
      }
    }
  }
}

// Arguments that both operators take.
TEST_CASE("GdnCase.AConvolutionAndADecodeAreTwoLaunches", "[cpu]") {
  for (const Placement placement : {Placement::kContiguous, Placement::kRank4}) {
    gdn::DecodeProblem problem = convolved_problem();
    const GdnCase data(as_prefill(problem), uniform(5, 1), {.placement = placement});
    GdnMemory memory = data.memory();
    std::vector<std::byte> rows(idx(5 * conv_split(data.problem()).end * 2));
    const TwoLaunches two =
        as_two_launches(problem, as_decode(data.args(addresses(&memory))), rows.data());
    CHECK((two.conv.check().ok() && two.decode.check().ok() && !two.decode.conv.is_there()));
    gdn::ConvExtent extent;
    REQUIRE(conv_extent(two.conv, two.conv_args, &extent).ok());
    CHECK((extent.sequences == 5 && extent.tokens == 1));
    GdnConvParams conv{};
    const Status bound = bind_conv(two.conv, two.conv_args, extent, &conv);
    INFO(bound.message());
    CHECK(bound.ok());
    GdnDecodeParams decode{};
    CHECK(bind_decode(two.decode, two.decode_args, 5, &decode).ok());
    CHECK((decode.q.data == rows.data() &&
           decode.q.stride == RequestStrides{extent.channels, data.problem().key_dim}));
  }
}

TEST_CASE("GdnCase.FindsWhatAConvolutionGetsWrong", "[cpu]") {
  const GdnCase data(small_problem(as_prefill(convolved_problem())), uniform(3, 1),
                     {.separate_out = true, .chunk_size = 0});
  const GdnMemory right = play_convolved(data);
  REQUIRE(data.check(right).ok());
  for (const TensorId tensor :
       {TensorId::kX, TensorId::kConvWeight, TensorId::kConvState, TensorId::kConvStateOut}) {
    find_writes_around(data, right, info_of(tensor));
  }
  // One bit of an input that is kept.
  GdnMemory changed = right;
  const GdnCase::Place kept = data.conv_state_at(TensorId::kConvStateOut, data.row(1).write, 7, 1);
  changed[kept.piece][kept.byte] ^= std::byte{1};
  CHECK(data.check(changed).fault.starts_with("writes in or around conv_state_out"));
  // A tap more counts.
  GdnCase other = data;
  store(DType::kBF16, other.at(other.tap_at(TensorId::kConvWeight, 3, 0)), 3);
  GdnMemory after = play_convolved(other);
  const auto weight = static_cast<std::size_t>(TensorId::kConvWeight);
  after[weight] = data.memory()[weight];
  CHECK_FALSE(data.check(after).errors.ok());
}

TEST_CASE("GdnCase.AVerificationIsAPrefillWithAStateAfterEachToken", "[cpu]") {
  gdn::VerifyProblem problem{.key_dim = 32, .value_dim = 32, .draft_tokens = 5};
  problem.stored_states = gdn::StoredStates::kEvery;
  const TokenSteps steps{.most = problem.draft_tokens};
  const PrefillProblem same = as_prefill(problem);
  CHECK(same.checkpoint_every == 1);
  CHECK_FALSE(same.states.store);
  const GdnCase data = check_case(small_problem(same), {}, 0, steps);
  GdnMemory memory = data.memory();
  const gdn::VerifyArgs args = as_verify(problem, data.args(addresses(&memory)));
  CHECK(args.q.rank == 4);
  const std::int64_t requests = args.q.shape[0];
  CHECK(args.q.shape[1] == 5);
  REQUIRE(args.state_out.rank == 5);
  CHECK(args.state_out.shape[0] == requests);
  CHECK(args.state_out.shape[1] == 5);
  CHECK(args.state_out.strides[0] == 5 * args.state_out.strides[1]);
  const GdnVerdict verdict = data.check(play(data));
  CHECK(verdict.errors.o.ok());
  CHECK(verdict.fault == "");
}

TEST_CASE("GdnCase.AVerificationMayHaveANorm", "[cpu]") {
  for (const auto norm : {gdn::OutputNorm::kGatedRms, gdn::OutputNorm::kSigmoidGatedRms}) {
    for (const bool varlen : {false, true}) {
      const gdn::VerifyProblem problem{.key_dim = 32,
                                       .value_dim = 32,
                                       .draft_tokens = 4,
                                       .varlen = varlen,
                                       .output_norm = norm,
                                       .norm_weight_dtype = DType::kF16};
      const GdnCase data(small_problem(HarnessOf<gdn::VerifyProblem>::reference(problem)),
                         uniform(5, 3), {.norm_eps = 0.5f, .chunk_size = 0});
      GdnMemory memory = data.memory();
      const gdn::VerifyArgs args = as_verify(problem, data.args(addresses(&memory)));
      CHECK(args.z.rank == (varlen ? 3 : 4));
      CHECK((args.norm_weight.shape[0] == 32 && args.norm_weight.dtype == DType::kF16));
      CHECK(args.norm_eps == 0.5f);
      const GdnVerdict verdict = data.check(play(data));
      CHECK(verdict.errors.o.ok());
      CHECK(verdict.fault == "");
    }
  }
}

// Of a tree each token is the last of its path, decoded by itself.
TEST_CASE("GdnCase.ATreeIsItsPaths", "[cpu]") {
  for (const DType parents_dtype : {DType::kI32, DType::kI64}) {
    for (const bool varlen : {false, true}) {
      const gdn::VerifyProblem problem{.key_dim = 32,
                                       .value_dim = 32,
                                       .states = {.store = false},
                                       .draft_tokens = 7,
                                       .varlen = varlen,
                                       .tree = true,
                                       .parents_dtype = parents_dtype};
      const TokenSteps steps = HarnessOf<gdn::VerifyProblem>::steps(problem);
      CHECK(steps.parents == parents_dtype);
      GdnCase data = check_case(small_problem(as_prefill(problem)), {.seed = 3}, 0, steps);
      GdnMemory memory = data.memory();
      const gdn::VerifyArgs args = as_verify(problem, data.args(addresses(&memory)));
      CHECK(args.parents.dtype == parents_dtype);
      CHECK(args.parents.rank == (varlen ? 1 : 2));
      CHECK(elements_of(args.parents) == elements_of(args.g) / data.problem().heads.count());
      const std::vector<GdnReference> references = data.references();
      bool branches = false;
      for (std::int64_t n = 0; n < data.sequences(); ++n) {
        const auto parents = draw_parents(data.options().data(), n, data.length(n));
        for (std::int64_t t = 0; t < data.length(n); ++t) {
          std::vector<std::int64_t> path;
          for (std::int64_t i = t; i >= 0; i = parents[idx(i)]) path.insert(path.begin(), i);
          branches |= parents[idx(t)] != t - 1;
          std::vector<double> state = data.initial_state<double>(n, 0);
          std::vector<double> o(idx(data.problem().value_dim));
          for (const std::int64_t i : path) {
            gdn_prefill_ref(data.head<double>(n, 0, i, i + 1), state.data(), o.data());
          }
          const auto& all = references[idx(n * data.problem().heads.count())].o;
          CHECK(std::equal(o.begin(), o.end(), all.begin() + t * data.problem().value_dim));
        }
      }
      CHECK(branches);
      // A parent that cannot be.
      store_integer(parents_dtype, data.at(data.parent_at(1, 0)), 0);
      CHECK(data.row(1).kind == RowKind::kInvalid);
      CHECK(data.row(0).kind == RowKind::kComputed);
    }
  }
}

TEST_CASE("GdnCase.AVerificationOfTheLastStateIsAPrefill", "[cpu]") {
  for (const bool varlen : {false, true}) {
    gdn::VerifyProblem problem{.key_dim = 32, .value_dim = 32, .draft_tokens = 4, .varlen = varlen};
    problem.states = {.location = StateLocation::kPool};
    const TokenSteps steps{.most = problem.draft_tokens};
    const GdnCase data = check_case(small_problem(as_prefill(problem)), {}, 0, steps);
    // Packed requests differ in length.
    const std::vector<std::int64_t> lengths = check_lengths(as_prefill(problem), 0, steps);
    CHECK(lengths.front() == 4);
    CHECK(lengths.back() == (varlen ? 1 : 4));
    GdnMemory memory = data.memory();
    const gdn::VerifyArgs args = as_verify(problem, data.args(addresses(&memory)));
    CHECK(args.cu_seqlens.present() == varlen);
    CHECK(args.state_indices.shape[0] == static_cast<std::int64_t>(lengths.size()));
    CHECK_FALSE(args.accepted.present());
    const GdnVerdict verdict = data.check(play(data));
    CHECK(verdict.errors.o.ok());
    CHECK(verdict.errors.state.ok());
    CHECK(verdict.fault == "");
  }
}

TEST_CASE("GdnCase.ACommitIsAPrefillWithoutOutputs", "[cpu]") {
  for (const bool varlen : {false, true}) {
    gdn::CommitProblem problem{.key_dim = 32, .value_dim = 32, .draft_tokens = 5, .varlen = varlen};
    problem.states = {.location = StateLocation::kPool};
    const TokenSteps steps{.most = problem.draft_tokens, .has_outputs = false};
    const GdnCase data = check_case(small_problem(as_prefill(problem)), {}, 0, steps);
    GdnMemory memory = data.memory();
    const GdnArgs all = data.args(addresses(&memory));
    const gdn::CommitArgs args = as_commit(all);
    CHECK(args.cu_seqlens.present() == varlen);
    CHECK_FALSE(args.accepted.present());
    CHECK_FALSE(args.layers.present());
    CHECK(args.layer.k.data == all.k.data);
    CHECK(args.layer.state.data == all.state.data);
    CHECK(args.state_indices.data == all.state_indices.data);
    // The states are compared; o must stay as it was.
    const GdnMemory good = play_states(data);
    const GdnVerdict verdict = data.check(good);
    CHECK(verdict.errors.state.ok());
    CHECK(verdict.fault == "");
    CHECK(data.check(play(data)).fault != "");
    CHECK_FALSE(data.check(data.memory()).errors.state.ok());
  }
}

TEST_CASE("GdnCase.EveryPlacement", "[cpu]") {
  for (const Placement placement :
       {Placement::kContiguous, Placement::kPackedRows, Placement::kTransposedHeads,
        Placement::kRank4, Placement::kUnaligned}) {
    for (const auto tokens : {gdn::TokenLayout::kBTHD, gdn::TokenLayout::kBHTD}) {
      for (const bool varlen : {false, true}) {
        PrefillProblem problem = test::tiny_prefill();
        problem.inputs.gate_mode = GateMode::kComputed;
        problem.token_layout = tokens;
        problem.varlen = varlen;
        problem.states.location = StateLocation::kPool;
        problem.checkpoints = Checkpoints::kAfter;
        problem.checkpoint_every = kChunk;
        CaseShape shape = uniform(3, 37);
        if (varlen) shape = {{21, 0, 40}, 3, 2, 1};
        CaseOptions options{.placement = placement, .scale = 0.5f};
        options.write_indices = true;
        check_plays(GdnCase(problem, shape, options));
        options.head_gap = 8;
        options.slot_gap = 24;
        options.separate_out = true;
        options.out_slot_gap = 40;
        check_plays(GdnCase(problem, shape, options));
      }
    }
  }
}

// However a case lies, its numbers are the same: operands can be exchanged between cases.
TEST_CASE("GdnCase.PlacementChangesNoNumber", "[cpu]") {
  PrefillProblem problem = test::tiny_prefill();
  problem.varlen = true;
  const CaseShape shape{.lengths = {20, 3}};
  const GdnCase plain(problem, shape), odd(problem, shape, {.placement = Placement::kUnaligned});
  const GdnMemory a = play(plain), b = play(odd);
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t t = 0; t < plain.length(n); ++t) {
      CHECK(plain.row_values(a, TensorId::kO, n, t, 1, 32) ==
            odd.row_values(b, TensorId::kO, n, t, 1, 32));
    }
    CHECK(plain.matrix_values<float>(a, TensorId::kState, n, 1) ==
          odd.matrix_values<float>(b, TensorId::kState, n, 1));
  }
}

TEST_CASE("GdnCase.NoSequencesAndNoTokens", "[cpu]") {
  PrefillProblem problem = test::tiny_prefill();
  for (const Placement placement :
       {Placement::kContiguous, Placement::kPackedRows, Placement::kRank4, Placement::kUnaligned}) {
    for (const bool varlen : {false, true}) {
      problem.varlen = varlen;
      for (const CaseShape& shape : {CaseShape{}, uniform(2, 0)}) {
        const GdnCase data(problem, shape, {.placement = placement});
        CHECK(data.check(play(data)).ok());
      }
    }
  }
  const GdnCase spare(problem, {.tail = 10});
  CHECK(spare.check(play(spare)).ok());
}

// Padding, invalid slots, and slots that sequences share.
TEST_CASE("GdnCase.EveryKindOfIndex", "[cpu]") {
  for (const Padding& padding : every_padding(15)) {
    if (padding.slot_id.value_or(-1) >= 0) continue;
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      PrefillProblem problem = test::tiny_prefill();
      problem.varlen = true;
      problem.states.location = StateLocation::kPool;
      problem.states.index_dtype = index_dtype;
      CaseOptions options{.slots = 16, .padding = padding};
      options.read = {5, -1, 7, 0, 16, 9, -5};
      const GdnCase data(problem, {.lengths = {7, 2, 0, 6, 3, 10, 1}, .lead = 2}, options);
      const bool none = !padding.slot_id;
      CHECK(data.row(0).kind == RowKind::kComputed);
      CHECK(data.row(1).kind == (none              ? RowKind::kInvalid
                                 : padding.scratch ? RowKind::kShared
                                 : padding.zero    ? RowKind::kZeroed
                                                   : RowKind::kSkipped));
      CHECK(data.row(4).kind == RowKind::kInvalid);
      CHECK(data.check(play(data)).ok());
      if (none) continue;
      options.read = {5, 6, 3};
      options.write = {-1, 6, -1};
      const GdnCase dropped(problem, uniform(3, 4), options);
      CHECK(dropped.row(0).write == (padding.scratch ? 15 : kNowhere));
      if (!padding.scratch) CHECK(dropped.check(play(dropped)).ok());
    }
  }
}

TEST_CASE("GdnCase.RangesThatCannotBe", "[cpu]") {
  PrefillProblem problem = test::tiny_prefill();
  problem.varlen = true;
  GdnCase data(problem, {.lengths = {7, 2, 10}});  // 0 7 9 19
  for (const auto& [index, value] : {std::pair{1, 10}, {3, 20}, {0, -1}, {2, -70}}) {
    GdnCase bad = data;
    store_integer(DType::kI32, bad.at(bad.vector_at(TensorId::kCuSeqlens, index)), value);
    CHECK(bad.row(0).kind == RowKind::kInvalid);
    CHECK(bad.check(play(bad)).ok());
    CHECK_FALSE(bad.check(play(data)).ok());  // outputs that are not NaN
  }
  problem.checkpoints = Checkpoints::kAfter;
  problem.checkpoint_every = kChunk;
  GdnCase kept(problem, {.lengths = {16, 16}});  // 0 1 2
  CHECK(kept.check(play(kept)).ok());
  store_integer(DType::kI32, kept.at(kept.vector_at(TensorId::kCheckpointCuStarts, 2)), 3);
  CHECK(kept.row(0).kind == RowKind::kComputed);
  CHECK(kept.row(1).kind == RowKind::kInvalid);
  CHECK(kept.check(play(kept)).ok());
}

// What a launch leaves, one value changed.
struct Spoilt {
  GdnCase data;
  GdnMemory memory;

  GdnVerdict with(TensorId tensor, std::ptrdiff_t element, float value) const {
    GdnMemory changed = memory;
    const Tensor x = tensor_of(data.args(addresses(&changed)), tensor);
    store(x.dtype, static_cast<std::byte*>(x.data) + element * size_of(x.dtype), value);
    return data.check(changed);
  }
};

TEST_CASE("GdnCase.FindsWhatIsWrong", "[cpu]") {
  PrefillProblem problem = test::tiny_prefill();
  problem.varlen = true;
  problem.states.location = StateLocation::kPool;
  const GdnCase data = check_case(problem, {}, kChunk);
  const Spoilt spoilt{data, play(data)};
  const std::int64_t heads = 2, dim = 32, matrix = 16 * 32;
  REQUIRE(data.check(spoilt.memory).ok());
  // The padded sequence is tokens 17 to 19.
  CHECK_FALSE(spoilt.with(TensorId::kO, 0, 99).errors.o.ok());
  CHECK_FALSE(spoilt.with(TensorId::kO, 0, NAN).errors.o.ok());
  const GdnVerdict padded = spoilt.with(TensorId::kO, 17 * heads * dim, 1);
  CHECK(padded.errors.o.ok());
  CHECK(padded.fault == "o of sequence 1, head 0, token 0: element 0 is 1, expected 0 (padding)");

  const std::int64_t slot = data.row(0).write;
  CHECK_FALSE(spoilt.with(TensorId::kState, slot * heads * matrix + 5, 99).errors.state.ok());
  const GdnVerdict foreign = spoilt.with(TensorId::kState, 5, 99);  // slot 0 is nobody's
  CHECK(foreign.errors.state.ok());
  CHECK(foreign.fault.starts_with("writes in or around state, byte 2"));
}

TEST_CASE("GdnCase.FindsWritesAroundEveryTensor", "[cpu]") {
  GdnProblem problem = test::tiny_prefill();
  problem.output_norm = gdn::OutputNorm::kGatedRms;
  problem.varlen = true;
  problem.inputs.gate_mode = GateMode::kComputed;
  problem.states.location = StateLocation::kPool;
  problem.checkpoints = Checkpoints::kBefore;
  problem.checkpoint_every = kChunk;
  for (const Placement placement : {Placement::kContiguous, Placement::kUnaligned}) {
    CaseOptions options{.placement = placement, .separate_out = true, .write_indices = true};
    const GdnCase data(problem, {.lengths = {20, 3}, .lead = 1, .tail = 1}, options);
    const GdnMemory right = play(data);
    REQUIRE(data.check(right).ok());
    for (const TensorInfo& info : kTensors) {
      // Parents below, the convolution's by themselves.
      if (info.id == TensorId::kParents || info.id >= TensorId::kX) continue;
      if (info.kind == TensorKind::kPlaces) continue;  // they have a case of their own
      find_writes_around(data, right, info);
    }
    // Parents, of a tree that the prefill takes for the chain that it is.
    problem.checkpoints = Checkpoints::kNone;
    options.parents = DType::kI64;
    GdnCase tree(problem, {.lengths = {20, 3}, .lead = 1, .tail = 1}, options);
    for (std::int64_t n = 0; n < tree.sequences(); ++n) {
      for (std::int64_t t = 0; t < tree.length(n); ++t) {
        store_integer(DType::kI64, tree.at(tree.parent_at(n, t)), t - 1);
      }
    }
    problem.checkpoints = Checkpoints::kBefore;
    const GdnMemory chain = play(tree);
    REQUIRE(tree.check(chain).ok());
    find_writes_around(tree, chain, info_of(TensorId::kParents));
    // Rows of no sequence, and elements between heads.
    GdnMemory changed = right;
    const Tensor o = data.args(addresses(&changed)).o;
    const std::int64_t gap = placement == Placement::kUnaligned ? problem.value_dim : 0;
    store(o.dtype, static_cast<std::byte*>(o.data) + gap * size_of(o.dtype), 1);
    CHECK(data.check(changed).fault.starts_with("writes in or around o, byte "));
  }
}

}  // namespace
}  // namespace cubinery
