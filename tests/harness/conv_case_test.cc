// What tuning compares a convolution with.  The operator is played in float, on the host.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/conv_check.h"
#include "harness/rounding.h"
#include "harness/tensors.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using gdn::ConvArgs;
using gdn::ConvProblem;
using gdn::StateLocation;

// A convolution by the words of cubinery/gdn_conv.h, with every tensor in memory of the host.
class HostConv {
 public:
  HostConv(const ConvProblem& problem, const ConvArgs& args) : p_(problem), args_(args) {}

  void run() const {
    const std::int64_t sequences = p_.varlen ? args_.cu_seqlens.shape[0] - 1 : args_.x.shape[0];
    for (std::int64_t n = 0; n < sequences; ++n) run_sequence(n);
    const std::int64_t tokens = p_.varlen ? args_.x.shape[0] : sequences * args_.x.shape[1];
    for (std::int64_t t = 0; t < tokens && p_.split_qkv; ++t) write_gates(t);
  }

 private:
  static std::byte* at(const Tensor& x, std::initializer_list<std::int64_t> index) {
    std::int64_t offset = 0;
    std::size_t d = 0;
    for (const std::int64_t i : index) offset += i * x.strides[d++];
    return static_cast<std::byte*>(x.data) + offset * size_of(x.dtype);
  }
  static std::int64_t integer(const Tensor& x, std::int64_t i) {
    return load_integer(x.dtype, at(x, {i}));
  }
  // Element `inner` of a token, whatever the dimensions behind it: they lie without gaps.
  std::byte* of_token(const Tensor& x, std::int64_t token, std::int64_t inner) const {
    std::int64_t width = 1;
    for (int d = p_.varlen ? 1 : 2; d < x.rank; ++d) width *= x.shape[static_cast<std::size_t>(d)];
    return static_cast<std::byte*>(x.data) + (token * width + inner) * size_of(x.dtype);
  }

  void run_sequence(std::int64_t n) const {
    const std::int64_t first = p_.varlen ? integer(args_.cu_seqlens, n) : n * args_.x.shape[1];
    const std::int64_t end =
        p_.varlen ? integer(args_.cu_seqlens, n + 1) : first + args_.x.shape[1];
    Where where{.row = n, .step = 0, .is_scratch = false};
    if (every() && p_.from_accepted) {
      where.step = std::max<std::int64_t>(integer(args_.accepted, n), 1) - 1;
    }
    bool zeroes = false;
    if (p_.states.location == StateLocation::kPool) {
      where.row = index(args_.state_indices, n, where.step);
      const bool pads = is_pad(where.row);
      if (pads && !args_.scratch_slot && !args_.zero_padding) return;
      zeroes = pads && args_.zero_padding;
      where.is_scratch = pads && args_.scratch_slot;
      if (where.is_scratch) where.row = *args_.scratch_slot;
    }
    const std::int64_t channels = args_.x.shape[p_.varlen ? 1 : 2];
    std::vector<std::vector<float>> y(idx(end - first));
    for (std::int64_t c = 0; c < channels; ++c) {
      if (!zeroes) run_channel(n, where, first, end, c, &y);
      for (std::vector<float>& row : y) row.resize(idx(channels));
    }
    for (std::int64_t t = first; t < end; ++t) write_outputs(t, y[idx(t - first)], zeroes);
  }

  // The state that a sequence starts from.
  struct Where {
    std::int64_t row, step;
    bool is_scratch;
  };

  bool every() const { return p_.states.store && p_.stored_states == gdn::StoredStates::kEvery; }
  bool is_pad(std::int64_t slot) const {
    if (!args_.pad_slot_id) return false;
    return *args_.pad_slot_id < 0 ? slot < 0 : slot == *args_.pad_slot_id;
  }
  static std::int64_t index(const Tensor& x, std::int64_t n, std::int64_t step) {
    return x.rank == 1 ? integer(x, n) : load_integer(x.dtype, at(x, {n, step}));
  }
  static std::byte* state_at(const Tensor& x, std::int64_t row, std::int64_t step, std::int64_t c,
                             std::int64_t column) {
    return x.rank == 3 ? at(x, {row, c, column}) : at(x, {row, step, c, column});
  }

  void store_columns(const Tensor& to, std::int64_t row, std::int64_t step, std::int64_t c,
                     const float* from, std::int64_t count) const {
    for (std::int64_t j = 0; j < count; ++j) {
      store(p_.states.dtype, state_at(to, row, step, c, j), from[j]);
    }
  }

  // Of a channel, whose inputs are those of the state in front of the tokens' and theirs.
  void store_kept(std::int64_t n, const Where& where, std::int64_t c, std::int64_t tokens,
                  const std::vector<float>& inputs) const {
    const std::int64_t columns = static_cast<std::int64_t>(inputs.size()) - tokens;
    const Tensor& out = args_.state_out.present() ? args_.state_out : args_.state;
    const Tensor& own = args_.state_out_indices;
    const Tensor& indices = own.present() ? own : args_.state_indices;
    for (std::int64_t t = 0; every() && t < tokens; ++t) {
      std::int64_t row = where.row;
      if (indices.present() && !where.is_scratch) row = index(indices, n, t);
      if (is_pad(row) && !where.is_scratch) continue;
      store_columns(out, row, t, c, &inputs[idx(t + 1)], columns);
    }
    if (p_.checkpoints == gdn::Checkpoints::kNone) return;
    if (p_.checkpoints == gdn::Checkpoints::kAt) return store_at_offsets(n, c, columns, inputs);
    const bool before = p_.checkpoints == gdn::Checkpoints::kBefore;
    const std::int64_t every = args_.checkpoint_every.value_or(p_.checkpoint_every);
    const auto count = [&](std::int64_t length) {
      return (length + (before ? every - 1 : 0)) / every;
    };
    std::int64_t row = p_.varlen ? integer(args_.checkpoint_cu_starts, n) : n * count(tokens);
    for (std::int64_t behind = before ? 0 : every; before ? behind < tokens : behind <= tokens;
         behind += every) {
      store_columns(args_.checkpoints, row++, 0, c, &inputs[idx(behind)], columns);
    }
  }

  void store_at_offsets(std::int64_t n, std::int64_t c, std::int64_t columns,
                        const std::vector<float>& inputs) const {
    for (std::int64_t i = 0; i < args_.checkpoint_offsets.shape[1]; ++i) {
      const std::int64_t offset = index(args_.checkpoint_offsets, n, i);
      const std::int64_t slot = index(args_.checkpoint_slots, n, i);
      if (offset <= 0 || slot < 0 || is_pad(slot)) continue;
      store_columns(args_.checkpoints, slot, 0, c, &inputs[idx(offset)], columns);
    }
  }

  void run_channel(std::int64_t n, const Where& where, std::int64_t first, std::int64_t end,
                   std::int64_t c, std::vector<std::vector<float>>* y) const {
    std::int64_t columns = p_.width - (p_.states.whole_window ? 0 : 1);
    if ((p_.from_accepted && !every()) || p_.circular_state) columns = args_.state.shape[2];
    const bool goes_on = p_.states.has_initial && (!args_.has_initial_state.present() ||
                                                   integer(args_.has_initial_state, n) != 0);
    std::vector<float> inputs;
    std::int64_t begin = 0, count = columns;
    if (p_.from_accepted && !every()) {
      begin = std::max<std::int64_t>(integer(args_.accepted, n), 1) - 1;
      count = p_.width - 1;
    }
    const std::int64_t had = p_.circular_state ? integer(args_.cache_seqlens, n) : 0;
    if (p_.circular_state) {
      count = p_.width - 1;
      begin = had + columns - count;
    }
    for (std::int64_t i = begin; i < begin + count; ++i) {
      const std::int64_t j = p_.circular_state ? i % columns : i;
      inputs.push_back(
          goes_on ? load(p_.states.dtype, state_at(args_.state, where.row, where.step, c, j))
                  : 0.0f);
    }
    for (std::int64_t t = first; t < end; ++t) {
      inputs.push_back(load(p_.dtype, of_token(args_.x, t, c)));
      float sum = p_.has_bias ? load(p_.weight_dtype, at(args_.bias, {c})) : 0;
      for (std::int64_t i = 0; i < p_.width; ++i) {
        sum += load(p_.weight_dtype, at(args_.weight, {c, i})) *
               inputs[inputs.size() - idx(p_.width - i)];
      }
      if (p_.activation == gdn::Activation::kSilu) sum = sum / (1 + std::exp(-sum));
      (*y)[idx(t - first)].resize(idx(c));
      (*y)[idx(t - first)].push_back(sum);
    }
    store_kept(n, where, c, end - first, inputs);
    if (!p_.states.store || every() || (p_.from_accepted && first == end)) return;
    const Tensor& out = args_.state_out.present() ? args_.state_out : args_.state;
    if (p_.circular_state) {
      for (std::int64_t t = 0; t < end - first; ++t) {
        store(p_.states.dtype, at(out, {where.row, c, (had + t) % columns}),
              inputs[idx(count + t)]);
      }
      return;
    }
    const std::size_t oldest = p_.from_accepted ? 1 : inputs.size() - idx(columns);
    for (std::size_t h = oldest; h < inputs.size(); ++h) {
      store(p_.states.dtype, at(out, {where.row, c, static_cast<std::int64_t>(h - oldest)}),
            inputs[h]);
    }
  }

  void write_outputs(std::int64_t t, std::vector<float> y, bool zeroes) const {
    if (!p_.split_qkv) return write(args_.y, t, y.data(), y.size());
    float* head = y.data();
    const auto write_heads = [&](const Tensor& x, int heads, int dim, bool normed, float scale) {
      float* const from = head;
      for (int h = 0; h < heads; ++h, head += dim) {
        float sum = 1e-6f;
        for (int d = 0; d < dim; ++d) sum += head[d] * head[d];
        const float factor = zeroes ? 0 : normed ? scale / std::sqrt(sum) : scale;
        for (int d = 0; d < dim; ++d) head[d] *= factor;
      }
      write(x, t, from, idx(heads) * idx(dim));
    };
    const bool normed = p_.inputs.use_qk_l2norm;
    write_heads(args_.q, p_.heads.q, p_.key_dim, normed, args_.scale);
    write_heads(args_.k, p_.heads.k, p_.key_dim, normed, 1);
    write_heads(args_.v, p_.heads.v, p_.value_dim, false, 1);
  }

  void write(const Tensor& x, std::int64_t t, const float* values, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) {
      store(p_.dtype, of_token(x, t, static_cast<std::int64_t>(i)), values[i]);
    }
  }

  void write_gates(std::int64_t t) const {
    for (std::int64_t h = 0; h < p_.heads.count(); ++h) {
      const int width = p_.inputs.decay == gdn::Decay::kChannel ? p_.key_dim : 1;
      for (int d = 0; d < width; ++d) write_log_decay(t, h, h * width + d);
      if (p_.inputs.beta_mode != gdn::BetaMode::kOne) {
        const float b = load(p_.inputs.beta_dtype, of_token(args_.b, t, h));
        const float most = p_.inputs.beta_mode == gdn::BetaMode::kLogit ? 1.0f : 2.0f;
        store(DType::kF32, of_token(args_.beta, t, h), most / (1 + std::exp(-b)));
      }
    }
  }

  // Of number `i` of the token's, which has its own in dt_bias.
  void write_log_decay(std::int64_t t, std::int64_t h, std::int64_t i) const {
    const gdn::Inputs& inputs = p_.inputs;
    if (inputs.gate_mode == gdn::GateMode::kNone) return;
    float x = load(inputs.gate_dtype, of_token(args_.a, t, i)), a = 1;
    if (args_.dt_bias.present()) {
      const auto* const bias = static_cast<const std::byte*>(args_.dt_bias.data);
      x += load(inputs.dt_bias_dtype, bias + i * size_of(inputs.dt_bias_dtype));
    }
    if (args_.A_log.present()) a = std::exp(load(inputs.a_log_dtype, at(args_.A_log, {h})));
    const float g = inputs.gate_mode == gdn::GateMode::kComputed
                        ? -a * std::log1p(std::exp(x))
                        : *args_.lower_bound / (1 + std::exp(-a * x));
    store(DType::kF32, of_token(args_.g, t, i), g);
  }

  const ConvProblem& p_;
  const ConvArgs& args_;
};

GdnMemory after_launch(const ConvCase& data) {
  GdnMemory memory = data.memory();
  const ConvArgs args = data.args(addresses(&memory));
  HostConv(data.problem(), args).run();
  return memory;
}

ConvProblem tiny_split() {
  ConvProblem problem{.heads = {.q = 1, .k = 1, .v = 2},
                      .key_dim = 16,
                      .value_dim = 32,
                      .split_qkv = true,
                      .varlen = true};
  problem.states.location = StateLocation::kPool;
  return problem;
}

// That keep more states than the last.
void add_kept(bool varlen, std::vector<ConvProblem>* problems) {
  constexpr gdn::StoredStates kEvery = gdn::StoredStates::kEvery;
  for (const bool from_accepted : {false, true}) {
    for (const bool whole_window : {false, true}) {
      problems->push_back({.states = {.whole_window = whole_window},
                           .varlen = varlen,
                           .stored_states = kEvery,
                           .from_accepted = from_accepted});
      problems->push_back({.width = 3,
                           .states = {.layout = gdn::ConvStateLayout::kChannels,
                                      .location = StateLocation::kPool,
                                      .whole_window = whole_window},
                           .varlen = varlen,
                           .stored_states = kEvery,
                           .from_accepted = from_accepted});
    }
  }
  problems->push_back(
      {.states = {.has_initial = false}, .varlen = varlen, .stored_states = kEvery});
  for (const gdn::Checkpoints checkpoints : {gdn::Checkpoints::kBefore, gdn::Checkpoints::kAfter}) {
    for (const int every : {1, 3, 64, 100}) {
      problems->push_back({.states = {.location = StateLocation::kPool, .whole_window = every == 3},
                           .varlen = varlen,
                           .checkpoints = checkpoints,
                           .checkpoint_every = every});
    }
    problems->push_back({.states = {.has_initial = false, .store = false},
                         .varlen = varlen,
                         .checkpoints = checkpoints,
                         .checkpoint_every = 7});
  }
  for (const bool whole_window : {false, true}) {
    problems->push_back({.states = {.index_dtype = DType::kI64, .whole_window = whole_window},
                         .varlen = varlen,
                         .checkpoints = gdn::Checkpoints::kAt});
    problems->push_back({.states = {.layout = gdn::ConvStateLayout::kChannels,
                                    .location = StateLocation::kPool,
                                    .whole_window = whole_window},
                         .varlen = varlen,
                         .checkpoints = gdn::Checkpoints::kAt});
  }
  problems->push_back({.states = {.has_initial = false, .store = false},
                       .varlen = varlen,
                       .checkpoints = gdn::Checkpoints::kAt});
}

std::vector<ConvProblem> all_kinds() {
  std::vector<ConvProblem> problems{{}, {.varlen = true}, tiny_split()};
  problems.push_back(tiny_split());
  problems.back().states.layout = gdn::ConvStateLayout::kChannels;
  problems.back().has_bias = true;
  problems.back().inputs = {.gate_mode = gdn::GateMode::kComputed,
                            .beta_mode = gdn::BetaMode::kDoubledLogit,
                            .use_qk_l2norm = true};
  problems.push_back(problems.back());
  problems.back().inputs.decay = gdn::Decay::kChannel;
  problems.back().inputs.gate_mode = gdn::GateMode::kLowerBound;
  for (const bool varlen : {false, true}) {
    problems.push_back({.width = 3, .varlen = varlen, .from_accepted = true});
    for (int width = 2; width <= 4; ++width) {
      problems.push_back({.width = width, .varlen = varlen, .circular_state = true});
    }
    problems.push_back({.width = 2,
                        .activation = gdn::Activation::kNone,
                        .states = {.dtype = DType::kF32, .whole_window = true},
                        .varlen = varlen});
    problems.push_back({.dtype = DType::kF32, .states = {.has_initial = false}, .varlen = varlen});
    problems.push_back({.states = {.store = false}, .varlen = varlen});
    problems.push_back({.states = {.has_initial = false, .store = false}, .varlen = varlen});
    add_kept(varlen, &problems);
  }
  return problems;
}

// Gates of every form, with rows of 16 channels and without.
std::vector<ConvProblem> every_gate() {
  std::vector<ConvProblem> problems;
  for (const gdn::Decay decay : {gdn::Decay::kHead, gdn::Decay::kChannel}) {
    for (const gdn::GateMode mode : {gdn::GateMode::kComputed, gdn::GateMode::kLowerBound}) {
      for (const bool varlen : {false, true}) {
        ConvProblem& problem = problems.emplace_back(tiny_split());
        problem.varlen = varlen;
        problem.inputs.decay = decay;
        problem.inputs.gate_mode = mode;
        problem.inputs.gate_dtype = varlen ? DType::kBF16 : DType::kF32;
        if (varlen) problem.inputs.beta_mode = gdn::BetaMode::kLogit;
      }
    }
  }
  return problems;
}

TEST_CASE("ConvCase.GatesOfEveryForm") {
  for (const ConvProblem& problem : every_gate()) {
    for (const bool bare : {false, true}) {
      const ConvCase data(problem, {.lengths = {3, 3}, .lower_bound = -2, .bare_gates = bare});
      INFO(problem.to_json() << (bare ? ", bare" : ""));
      GdnMemory memory = data.memory();
      const ConvArgs args = data.args(addresses(&memory));
      const bool has_bound = problem.inputs.gate_mode == gdn::GateMode::kLowerBound;
      const bool has_rows = problem.inputs.decay == gdn::Decay::kChannel;
      CHECK(args.lower_bound == (has_bound ? std::optional(-2.0f) : std::nullopt));
      CHECK(args.A_log.present() == !(bare && has_bound));
      CHECK(args.dt_bias.present() == !(bare && has_rows));
      CHECK(elements_of(args.g) == 6 * 2 * (has_rows ? 16 : 1));
      const ConvReference reference = data.reference();
      const ConvVerdict verdict = data.check(after_launch(data), reference);
      CHECK(verdict.fault == "");
      CHECK(verdict.ok());
      // A wrong one is found.
      memory = after_launch(data);
      auto& g = memory[static_cast<std::size_t>(TensorId::kG)];
      store(DType::kF32, g.data() + g.size() - kGuardBytes - sizeof(float), -3.0f);
      CHECK_FALSE(data.check(memory, reference).ok());
    }
  }
}

TEST_CASE("ConvCase.ARightLaunchPasses") {
  for (const ConvProblem& problem : all_kinds()) {
    INFO(problem.to_json());
    REQUIRE(problem.check().ok());
    for (const ConvCheckCase& one : conv_check_cases(problem)) {
      INFO(one.name);
      const ConvVerdict verdict = one.data.check(after_launch(one.data), one.reference);
      CHECK(verdict.fault == "");
      CHECK(verdict.ok());
      for (const ConvVerdict::Error& error : verdict.errors) {
        CHECK(error.deviation.worst <= error.deviation.naive * 1.5);
      }
    }
  }
}

// The cases have something of all that is checked: each change of a byte is found.
TEST_CASE("ConvCase.EveryWrongByteIsFound") {
  const ConvCheckCase one = conv_check_cases(tiny_split()).front();
  const GdnMemory right = after_launch(one.data);
  for (std::size_t piece = 0; piece < right.size(); ++piece) {
    if (right[piece].empty()) continue;
    const std::size_t middle = kGuardBytes + (right[piece].size() - 2 * kGuardBytes) / 2 + 1;
    for (const std::size_t byte : {std::size_t{0}, middle, right[piece].size() - 1}) {
      INFO(info_of<ConvArgs>(static_cast<TensorId>(piece)).name << " " << byte);
      GdnMemory wrong = right;
      wrong[piece][byte] ^= std::byte{0x42};
      CHECK_FALSE(one.data.check(wrong, one.reference).ok());
    }
  }
}

TEST_CASE("ConvCase.AStateThatIsNotWrittenIsFound") {
  for (const ConvCheckCase& one : conv_check_cases(tiny_split())) {
    GdnMemory wrong = after_launch(one.data);
    const auto state = static_cast<std::size_t>(TensorId::kState);
    wrong[state] = one.data.memory()[state];
    const ConvVerdict verdict = one.data.check(wrong, one.reference);
    CHECK(verdict.fault.starts_with("state, byte "));
    CHECK_FALSE(verdict.ok());
  }
}

TEST_CASE("ConvCase.TheSmallProblemHasTheSameKernels") {
  ConvProblem problem = tiny_split();
  problem.heads = {.q = 16, .k = 16, .v = 48};
  problem.key_dim = problem.value_dim = 128;
  const ConvProblem small = small_problem(problem);
  CHECK(small.heads.q == 1);
  CHECK(small.heads.v == 3);
  CHECK(small.check().ok());
}

TEST_CASE("ConvExtent.ColumnsAreAsManyAsTheLongestSequenceNeeds") {
  const ConvProblem problem{.varlen = true, .from_accepted = true};
  CHECK(completed(problem, {.lengths = {2, 6}, .channels = 8}).columns == 8);
  CHECK(completed(problem, {.lengths = {1}, .channels = 8}).columns == 3);
  CHECK(completed(ConvProblem{.circular_state = true}, {.lengths = {6}, .channels = 8}).columns ==
        8);
  CHECK(completed(ConvProblem{.states = {.whole_window = true}}, {.channels = 8}).columns == 4);
  CHECK(completed(tiny_split(), {}).channels == 96);
}

TEST_CASE("ConvExtent.LeastBytesCountEachOnce") {
  const Extent extent = completed(ConvProblem{}, {.lengths = {5, 5}, .channels = 8});
  // x and y, weight, states read and written.
  CHECK(least_bytes(ConvProblem{}, extent) ==
        2 * (2 * 5 * 8 * 2) + 8 * 4 * 2 + 2 * (2 * 8 * 3 * 2));
}

}  // namespace
}  // namespace cubinery
