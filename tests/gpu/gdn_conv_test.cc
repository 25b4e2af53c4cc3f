// GDN conv: every option against the double-precision reference, then what must hold whatever the
// option: tensors as they lie, errors that only the device can see, states in place.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "harness/conv_case.h"
#include "harness/conv_check.h"
#include "harness/random.h"
#include "harness/rounding.h"
#include "runtime/gdn/conv/operator.h"
#include "tests/gpu/cases.h"

namespace cubinery::test::gdn_conv_test {
namespace {

using gdn::ConvArgs;
using gdn::ConvProblem;

const std::vector<DType> kFloatTypes{DType::kF32, DType::kBF16, DType::kF16};

// q and k of two heads, v of three.
ConvProblem split(ConvProblem problem = {}) {
  problem.split_qkv = true;
  problem.heads = {.q = 2, .k = 2, .v = 4};
  problem.key_dim = 64;
  problem.value_dim = 48;
  return problem;
}

ConvProblem packed(ConvProblem problem = {}) {
  problem.varlen = true;
  return problem;
}

ConvProblem pool(ConvProblem problem = {}) {
  problem.states.location = gdn::StateLocation::kPool;
  return problem;
}

ConvProblem with_gates(ConvProblem problem) {
  problem.inputs.gate_mode = gdn::GateMode::kComputed;
  problem.inputs.beta_mode = gdn::BetaMode::kLogit;
  problem.inputs.use_qk_l2norm = true;
  return problem;
}

// A decay for each channel of k.
ConvProblem with_rows(ConvProblem problem, gdn::GateMode mode = gdn::GateMode::kLowerBound) {
  problem = with_gates(problem);
  problem.inputs.decay = gdn::Decay::kChannel;
  problem.inputs.gate_mode = mode;
  return problem;
}

constexpr gdn::GateMode kComputedModes[] = {gdn::GateMode::kComputed, gdn::GateMode::kLowerBound};

void expect_right(const ConvProblem& problem) {
  INFO("problem " << problem.to_json());
  const gdn::Conv conv = prepare(problem, conv_check_sizes(problem));
  ConvCheck checks(gpu().device(), problem);
  const Check check =
      checks.run({[&](Stream stream, const ConvArgs& args) { return conv.launch(stream, args); }})
          .value();
  INFO(check.worst);
  CHECK(check.error <= check.limit);
}

// A cover of pairs of their fields.
void expect_right(const std::vector<ConvProblem>& problems) {
  const std::vector<ConvProblem> chosen = cover(problems);
  on_all_processors(chosen.size(),
                    [&](std::size_t i) { prewarm(chosen[i], conv_check_sizes(chosen[i])); });
  for (const ConvProblem& problem : chosen) expect_right(problem);
}

// With the kernel of the case's launches.
gdn::Conv prepare_for(const ConvCase& data) {
  const ConvCaseOptions& options = data.options();
  const std::int64_t tokens =
      std::accumulate(options.lengths.begin(), options.lengths.end(), options.lead + options.tail);
  return prepare(
      data.problem(),
      {{.sequences = std::ssize(options.lengths), .tokens = tokens, .channels = options.channels}});
}

// Dense and packed.
void expect_both_right(ConvProblem problem) { expect_right(std::vector{problem, packed(problem)}); }

TEST_CASE("GdnConv.EveryWidthAndDtype", "[gpu][conv][slow][sanitize]") {
  std::vector<ConvProblem> problems;
  for (int width = 2; width <= 4; ++width) {
    for (const DType dtype : kFloatTypes) {
      for (const DType weight_dtype : kFloatTypes) {
        ConvProblem problem;
        problem.width = width;
        problem.dtype = dtype;
        problem.weight_dtype = weight_dtype;
        problem.has_bias = weight_dtype == dtype;
        problem.varlen = width != 3;
        problems.push_back(problem);
      }
    }
  }
  expect_right(problems);
}

TEST_CASE("GdnConv.WithAndWithoutEachOption", "[gpu][conv]") {
  std::vector<ConvProblem> problems;
  for (const gdn::Activation activation : {gdn::Activation::kNone, gdn::Activation::kSilu}) {
    for (const bool has_bias : {false, true}) {
      for (const bool is_split : {false, true}) {
        for (const bool varlen : {false, true}) {
          ConvProblem& problem = problems.emplace_back(is_split ? split() : ConvProblem());
          problem.activation = activation;
          problem.has_bias = has_bias;
          problem.varlen = varlen;
        }
      }
    }
  }
  expect_right(problems);
}

// Boundaries between q, k and v at any multiple of 8 channels, inside of a warp's.
TEST_CASE("GdnConv.EveryBoundary", "[gpu][conv][slow]") {
  std::vector<ConvProblem> problems;
  for (int dim = 8; dim <= 256; dim += 8) {
    for (const bool normed : {false, true}) {
      ConvProblem problem = split();
      problem.key_dim = dim;
      problem.value_dim = 264 - dim;
      problem.heads = {.q = 1, .k = 1, .v = dim % 16 == 0 ? 2 : 3};
      problem.inputs.use_qk_l2norm = normed;
      problem.varlen = dim % 32 == 0;
      if (dim % 24 == 0) problem.dtype = DType::kF32;
      problems.push_back(problem);
    }
  }
  ConvProblem queries = with_gates(split());
  queries.heads = {.q = 4, .k = 2, .v = 2};
  problems.push_back(queries);
  expect_right(problems);
}

TEST_CASE("GdnConv.EveryGateModeAndDtype", "[gpu][conv][slow][sanitize]") {
  std::vector<ConvProblem> problems;
  for (const DType dtype : kFloatTypes) {
    for (const gdn::BetaMode beta :
         {gdn::BetaMode::kOne, gdn::BetaMode::kLogit, gdn::BetaMode::kDoubledLogit}) {
      ConvProblem problem = with_gates(split());
      problem.inputs.gate_dtype = problem.inputs.beta_dtype = dtype;
      problem.inputs.a_log_dtype = problem.inputs.dt_bias_dtype = dtype;
      problem.inputs.beta_mode = beta;
      if (beta == gdn::BetaMode::kLogit) problem.inputs.use_qk_l2norm = false;
      problem.varlen = beta != gdn::BetaMode::kOne;
      problems.push_back(problem);
    }
  }
  ConvProblem only_beta = with_gates(split());
  only_beta.inputs.gate_mode = gdn::GateMode::kNone;
  problems.push_back(only_beta);
  expect_right(problems);
}

TEST_CASE("GdnConv.ALowerBoundOfOneDecay", "[gpu][conv]") {
  ConvProblem problem = with_gates(split());
  problem.inputs.gate_mode = gdn::GateMode::kLowerBound;
  expect_both_right(problem);
}

TEST_CASE("GdnConv.EveryGateModeAndDtypeOfRows", "[gpu][conv][slow][sanitize]") {
  std::vector<ConvProblem> problems;
  for (const gdn::GateMode mode : kComputedModes) {
    for (const DType dtype : kFloatTypes) {
      for (const gdn::BetaMode beta :
           {gdn::BetaMode::kOne, gdn::BetaMode::kLogit, gdn::BetaMode::kDoubledLogit}) {
        ConvProblem& problem = problems.emplace_back(with_rows(split(), mode));
        problem.inputs.gate_dtype = problem.inputs.beta_dtype = dtype;
        problem.inputs.beta_mode = beta;
        problem.inputs.use_qk_l2norm = beta != gdn::BetaMode::kLogit;
        problem.varlen = beta != gdn::BetaMode::kOne;
        if (mode == gdn::GateMode::kComputed) {
          problem.inputs.a_log_dtype = problem.inputs.dt_bias_dtype = dtype;
        }
      }
    }
  }
  expect_right(problems);
}

// Heads have from two lanes on, whole warps of them or parts, and more of v than of k.
TEST_CASE("GdnConv.RowsOfGatesOfEveryHeadSize", "[gpu][conv][slow]") {
  std::vector<ConvProblem> problems;
  for (int dim = 8; dim <= 256; dim += 8) {
    for (const bool varlen : {false, true}) {
      ConvProblem& problem = problems.emplace_back(with_rows(split()));
      problem.key_dim = dim;
      problem.heads.v = dim % 16 == 0 ? 4 : 6;
      problem.varlen = varlen;
      problem.inputs.use_qk_l2norm = dim % 24 != 0;
      problem.inputs.gate_dtype = varlen ? DType::kBF16 : DType::kF32;
    }
  }
  expect_right(problems);
}

// Sequences by themselves, with a state after each token, checkpoints, or from accepted tokens on.
TEST_CASE("GdnConv.RowsOfGatesOfEveryKindOfLaunch", "[gpu][conv][sanitize]") {
  std::vector<ConvProblem> problems;
  for (const bool varlen : {false, true}) {
    ConvProblem problem = pool(with_rows(split(), gdn::GateMode::kComputed));
    problem.varlen = varlen;
    problems.push_back(problem);
    problems.emplace_back(problem).stored_states = gdn::StoredStates::kEvery;
    problems.emplace_back(problem).from_accepted = true;
    problems.emplace_back(problem).circular_state = true;
    problems.emplace_back(problem).checkpoints = gdn::Checkpoints::kAt;
  }
  expect_right(problems);
}

TEST_CASE("GdnConv.EveryStateForm", "[gpu][conv][slow][sanitize]") {
  std::vector<ConvProblem> problems;
  for (const auto layout : {gdn::ConvStateLayout::kColumns, gdn::ConvStateLayout::kChannels}) {
    for (const bool whole : {false, true}) {
      for (const DType dtype : kFloatTypes) {
        for (int width = 2; width <= 4; ++width) {
          ConvProblem problem = width == 3 ? split() : ConvProblem();
          problem.width = width;
          problem.states.layout = layout;
          problem.states.whole_window = whole;
          problem.states.dtype = dtype;
          problem.varlen = width != 2;
          if (dtype != DType::kF16) problem = pool(problem);
          problems.push_back(problem);
        }
      }
    }
  }
  for (const auto& [has_initial, store] :
       {std::pair(false, true), std::pair(true, false), std::pair(false, false)}) {
    for (const bool in_pool : {false, true}) {
      for (const bool varlen : {false, true}) {
        ConvProblem problem = in_pool ? pool() : ConvProblem();
        problem.states.has_initial = has_initial;
        problem.states.store = store;
        problem.varlen = varlen;
        problems.push_back(problem);
      }
    }
  }
  expect_right(problems);
}

TEST_CASE("GdnConv.GoesOnFromAcceptedTokens", "[gpu][conv][sanitize]") {
  std::vector<ConvProblem> problems;
  for (const auto layout : {gdn::ConvStateLayout::kColumns, gdn::ConvStateLayout::kChannels}) {
    for (int width = 2; width <= 4; ++width) {
      for (const bool varlen : {false, true}) {
        ConvProblem problem = pool(width == 3 ? with_gates(split()) : ConvProblem());
        problem.width = width;
        problem.states.layout = layout;
        problem.varlen = varlen;
        problem.from_accepted = true;
        problem.accepted_dtype = varlen ? DType::kI64 : DType::kI32;
        problems.push_back(problem);
      }
    }
  }
  expect_right(problems);
}

TEST_CASE("GdnConv.GoesAroundACircularState", "[gpu][conv][sanitize]") {
  std::vector<ConvProblem> problems;
  for (const auto layout : {gdn::ConvStateLayout::kColumns, gdn::ConvStateLayout::kChannels}) {
    for (int width = 2; width <= 4; ++width) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const bool varlen : {false, true}) {
          ConvProblem problem = width == 3 ? pool(with_gates(split())) : ConvProblem();
          problem.width = width;
          problem.dtype = problem.states.dtype = dtype;
          problem.states.layout = layout;
          problem.varlen = varlen;
          problem.circular_state = true;
          problems.push_back(problem);
        }
      }
    }
  }
  expect_right(problems);
}

// A case on the device.
class Launched {
 public:
  explicit Launched(const ConvCase& data)
      : data_(data), memory_(GdnDeviceMemory::allocate(gpu().device(), data.memory()).value()) {}

  ConvArgs args() const { return data_.args(memory_.addresses()); }
  void upload() const { memory_.upload(data_.memory()).value(); }
  void upload(const GdnMemory& memory) const { memory_.upload(memory).value(); }
  GdnMemory download() const { return memory_.download().value(); }

  // Uploads and launches `times` times, one behind the other.
  GdnMemory run(const gdn::Conv& conv, const ConvArgs& args, int times = 1) const {
    const DeviceStream stream = make_stream(gpu());
    upload();
    for (int i = 0; i < times; ++i) REQUIRE(conv.launch(stream.get(), args).ok());
    stream.synchronize().value();
    return download();
  }
  GdnMemory run(const gdn::Conv& conv) const { return run(conv, args()); }

 private:
  const ConvCase& data_;
  GdnDeviceMemory memory_;
};

void expect_good(const ConvCase& data, const GdnMemory& after) {
  const ConvVerdict verdict = data.check(after, data.reference());
  for (const ConvVerdict::Error& error : verdict.errors) {
    INFO(info_of<ConvArgs>(error.tensor).name << ": " << error.deviation.actual << " for "
                                              << error.deviation.expected);
    CHECK(error.deviation.ok());
  }
  CHECK(verdict.fault == "");
}

// A_log and dt_bias that are absent, dt_bias that is flat, and lower bounds.
TEST_CASE("GdnConv.BareAndFlatGates", "[gpu][conv][sanitize]") {
  for (const gdn::GateMode mode : kComputedModes) {
    for (const bool varlen : {false, true}) {
      ConvProblem problem = with_rows(split(), mode);
      problem.varlen = varlen;
      for (const std::int64_t tokens : {1, 7, 100}) {
        INFO("gate mode " << static_cast<int>(mode) << ", " << tokens << " tokens");
        const std::vector<std::int64_t> lengths(3, tokens);
        const ConvCase bare(problem, {.lengths = lengths, .seed = seed(), .bare_gates = true});
        const gdn::Conv conv = prepare_for(bare);
        expect_good(bare, Launched(bare).run(conv));
        const ConvCase full(problem, {.lengths = lengths, .seed = seed()});
        const Launched launched(full);
        ConvArgs args = launched.args();
        args.dt_bias = Tensor::contiguous(args.dt_bias.data, args.dt_bias.dtype,
                                          {problem.heads.count() * problem.key_dim});
        expect_good(full, launched.run(conv, args));
      }
    }
  }
  ConvProblem of_heads = with_gates(split());
  of_heads.inputs.gate_mode = gdn::GateMode::kLowerBound;
  const ConvCase bare(of_heads, {.lengths = {9, 9}, .seed = seed(), .bare_gates = true});
  expect_good(bare, Launched(bare).run(prepare_for(bare)));
  for (const float bound : {-5.0f, -1.0f, -0.001f}) {
    const ConvCase data(with_rows(split()),
                        {.lengths = {9, 9}, .seed = seed(), .lower_bound = bound});
    expect_good(data, Launched(data).run(prepare_for(data)));
  }
}

// Batches of what a server has at a time: decoding steps beside prefills of any length.
TEST_CASE("GdnConv.RandomBatches", "[gpu][conv]") {
  ConvProblem problem = packed(pool(split()));
  const gdn::Conv conv = prepare(problem);
  for (std::uint64_t i = 0; i < 24; ++i) {
    Random random(seed() + i);
    ConvCaseOptions options{.seed = seed() + i, .has_flags = true};
    const std::int64_t sequences = 1 + random.below(i % 4 == 0 ? 300 : 12);
    for (std::int64_t n = 0; n < sequences; ++n) {
      const std::int64_t most = random.below(3) == 0 ? 700 : 6;
      options.lengths.push_back(random.below(sequences > 100 ? 6 : most));
    }
    options.lead = random.below(4);
    options.tail = random.below(4);
    const ConvCase data(problem, options);
    INFO("batch " << i << ", " << sequences << " sequences, seed " << seed());
    expect_good(data, Launched(data).run(conv));
  }
}

// A launch of the case whose host says so much of its longest sequence.
GdnMemory run_with_hint(const ConvCase& data, const gdn::Conv& conv, std::int64_t max_seqlen) {
  const Launched launched(data);
  ConvArgs args = launched.args();
  args.max_seqlen = max_seqlen;
  return launched.run(conv, args);
}

// Sequences by themselves have the bits that they have in runs of tokens, whether the hint is right
// or not.
TEST_CASE("GdnConv.AHintChangesNoBit", "[gpu][conv]") {
  for (ConvProblem problem : {packed(pool(split())), packed(pool(with_gates(split()))), packed()}) {
    problem.states.whole_window = problem.split_qkv && problem.inputs.use_qk_l2norm;
    for (std::uint64_t i = 0; i < 8; ++i) {
      Random random(seed() + i);
      ConvCaseOptions options{.channels = 328, .seed = seed() + i, .has_flags = true};
      const std::int64_t sequences = 1 + random.below(60);
      for (std::int64_t n = 0; n < sequences; ++n) options.lengths.push_back(random.below(7));
      if (i % 2 == 1) options.lengths.push_back(143);
      options.lead = random.below(4);
      options.tail = random.below(4);
      const ConvCase data(problem, options);
      const gdn::Conv conv = prepare_for(data);
      INFO("batch " << i << ", " << options.lengths.size() << " sequences, seed " << seed());
      const GdnMemory in_runs = run_with_hint(data, conv, 200);
      expect_good(data, in_runs);
      for (const std::int64_t hint : {1, 16}) {
        CHECK(first_difference(run_with_hint(data, conv, hint), in_runs) == "");
      }
    }
  }
}

// One run reads a sequence's state before it writes the new one: also where it has many runs.
TEST_CASE("GdnConv.StatesInPlaceOfLongSequences", "[gpu][conv]") {
  for (ConvProblem problem : {pool(), packed(pool())}) {
    problem.states.whole_window = true;
    const ConvCase data(problem, {.lengths = {4099, 4099}, .channels = 64, .seed = seed()});
    const gdn::Conv conv = prepare_for(data);
    const Launched launched(data);
    const GdnMemory first = launched.run(conv);
    expect_good(data, first);
    for (int i = 0; i < 300; ++i) CHECK(first_difference(launched.run(conv), first) == "");
  }
}

// The same numbers in tensors that lie otherwise.
class Relaid {
 public:
  // Strides in elements, none negative; the rest of the memory is kPoison.
  Relaid(const GdnMemory& memory, const TensorInfo& info, const Tensor& tensor,
         const std::vector<std::int64_t>& strides, std::int64_t offset)
      : tensor_(tensor), size_(static_cast<std::size_t>(size_of(tensor.dtype))) {
    std::int64_t reach = offset + 1;
    for (std::size_t d = 0; d < strides.size(); ++d) {
      tensor_.strides[d] = strides[d];
      reach += strides[d] * (tensor.shape[d] - 1);
    }
    bytes_.assign(static_cast<std::size_t>(reach) * size_, kPoison);
    piece_ = index_of(info.id);
    for_each([&](std::size_t here, std::size_t there) {
      std::copy_n(memory[piece_].data() + kGuardBytes + there * size_, size_,
                  bytes_.data() + (static_cast<std::size_t>(offset) + here) * size_);
    });
    offset_ = static_cast<std::size_t>(offset);
    buffer_.emplace_back(gpu(), bytes_.size());
    buffer_.front().upload(bytes_);
    tensor_.data = static_cast<std::byte*>(buffer_.front().data()) + offset_ * size_;
  }
  const Tensor& tensor() const { return tensor_; }

  // What a launch left there, in the place that it has in a contiguous tensor.
  void collect(GdnMemory* memory) const {
    const std::vector<std::byte> after = buffer_.front().download();
    std::vector<std::byte> others = after;
    for_each([&](std::size_t here, std::size_t there) {
      std::copy_n(after.data() + (offset_ + here) * size_, size_,
                  (*memory)[piece_].data() + kGuardBytes + there * size_);
      std::fill_n(others.data() + (offset_ + here) * size_, size_, kPoison);
    });
    CHECK(others == std::vector<std::byte>(others.size(), kPoison));
    CHECK(buffer_.front().guards_intact());
  }

 private:
  // Calls f(offset here, offset in a contiguous tensor), in elements.
  template <class Function>
  void for_each(Function f) const {
    std::int64_t count = 1;
    for (int d = 0; d < tensor_.rank; ++d) count *= tensor_.shape[static_cast<std::size_t>(d)];
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, here = 0;
      for (auto d = static_cast<std::size_t>(tensor_.rank); d-- > 0;) {
        here += rest % tensor_.shape[d] * tensor_.strides[d];
        rest /= tensor_.shape[d];
      }
      f(static_cast<std::size_t>(here), static_cast<std::size_t>(i));
    }
  }

  Tensor tensor_;
  std::size_t size_, piece_ = 0, offset_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<DeviceBuffer> buffer_;  // one
};

// Strides of a tensor whose dimensions lie in this order in memory, the innermost last, each
// `gap` elements longer than it must be.
std::vector<std::int64_t> strides_in_order(const Tensor& tensor, const std::vector<int>& order,
                                           std::int64_t gap) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(tensor.rank));
  std::int64_t stride = 1;
  for (auto i = order.size(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(order[i]);
    strides[d] = stride;
    stride = stride * tensor.shape[d] + gap;
  }
  return strides;
}

// Runs the case with one of its tensors laid otherwise; all bits are as before.  States are laid
// out by the problem and may be strided already: `order` is of the dimensions as they are named.
void expect_same_relaid(const ConvCase& data, const gdn::Conv& conv, const GdnMemory& expected,
                        TensorId which, const std::vector<int>& order, std::int64_t gap,
                        std::int64_t offset) {
  const TensorInfo& info = info_of<ConvArgs>(which);
  INFO(info.name << ", gap " << gap << ", offset " << offset);
  const Launched launched(data);
  ConvArgs args = launched.args();
  Tensor& tensor = tensor_of(args, which);
  REQUIRE(tensor.present());
  const Relaid relaid(data.memory(), info, tensor, strides_in_order(tensor, order, gap), offset);
  tensor = relaid.tensor();
  GdnMemory after = launched.run(conv, args);
  relaid.collect(&after);
  CHECK(first_difference(after, expected) == "");
}

TEST_CASE("GdnConv.TakesTensorsAsTheyLie", "[gpu][conv]") {
  for (const bool varlen : {false, true}) {
    ConvProblem problem = with_gates(split());
    problem.inputs.gate_dtype = problem.inputs.beta_dtype = DType::kBF16;
    problem.varlen = varlen;
    problem.has_bias = true;
    const ConvCase data(problem, {.lengths = {37, 37, 37}, .seed = seed()});
    const gdn::Conv conv = prepare_for(data);
    const GdnMemory expected = Launched(data).run(conv);
    expect_good(data, expected);
    const auto check = [&](TensorId which, const std::vector<int>& order, std::int64_t gap,
                           std::int64_t offset) {
      expect_same_relaid(data, conv, expected, which, order, gap, offset);
    };
    for (const auto& [gap, offset] : {std::pair(0, 0), {8, 0}, {8, 8}, {3, 0}, {0, 1}, {1, 5}}) {
      // In the order of their dimensions, and x with the tokens innermost.
      const std::vector<int> rows = varlen ? std::vector{0, 1} : std::vector{0, 1, 2};
      const std::vector<int> heads = varlen ? std::vector{0, 1, 2} : std::vector{0, 1, 2, 3};
      check(TensorId::kX, rows, gap, offset);
      check(TensorId::kX, varlen ? std::vector{1, 0} : std::vector{0, 2, 1}, gap, offset);
      for (const TensorId which : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
        check(which, heads, gap, offset);
        check(which, varlen ? std::vector{1, 0, 2} : std::vector{2, 0, 1, 3}, gap, offset);
        check(which, varlen ? std::vector{1, 2, 0} : std::vector{0, 2, 3, 1}, gap, offset);
      }
      for (const TensorId which : {TensorId::kA, TensorId::kB, TensorId::kG, TensorId::kBeta}) {
        check(which, rows, gap, offset);
      }
      check(TensorId::kConvWeight, {0, 1}, gap, offset);
      check(TensorId::kConvWeight, {1, 0}, gap, offset);
      check(TensorId::kConvBias, {0}, gap, offset);
      check(TensorId::kState, {0, 1, 2}, gap, offset);
      check(TensorId::kState, {0, 2, 1}, gap, offset);
      check(TensorId::kState, {1, 2, 0}, gap, offset);
    }
  }
}

// The same bits by vectors and by elements.
TEST_CASE("GdnConv.TakesRowsOfGatesAsTheyLie", "[gpu][conv]") {
  for (const gdn::GateMode mode : kComputedModes) {
    for (const bool varlen : {false, true}) {
      ConvProblem problem = with_rows(split(), mode);
      problem.inputs.gate_dtype = varlen ? DType::kBF16 : DType::kF32;
      problem.varlen = varlen;
      const ConvCase data(problem, {.lengths = {37, 37, 37}, .seed = seed()});
      const gdn::Conv conv = prepare_for(data);
      const GdnMemory expected = Launched(data).run(conv);
      expect_good(data, expected);
      const std::vector<int> rows = varlen ? std::vector{0, 1, 2} : std::vector{0, 1, 2, 3};
      const std::vector<int> heads_first = varlen ? std::vector{1, 0, 2} : std::vector{2, 0, 1, 3};
      for (const auto& [gap, offset] : {std::pair(0, 0), {8, 0}, {8, 8}, {4, 4}, {3, 0}, {0, 1}}) {
        for (const TensorId which : {TensorId::kA, TensorId::kG}) {
          expect_same_relaid(data, conv, expected, which, rows, gap, offset);
          expect_same_relaid(data, conv, expected, which, heads_first, gap, offset);
        }
        expect_same_relaid(data, conv, expected, TensorId::kDtBias, {0, 1}, gap, offset);
        expect_same_relaid(data, conv, expected, TensorId::kALog, {0}, gap, offset);
      }
    }
  }
}

// Channels that are no multiple of what a thread has.
TEST_CASE("GdnConv.AnyNumberOfChannels", "[gpu][conv][sanitize]") {
  for (const bool varlen : {false, true}) {
    ConvProblem problem;
    problem.varlen = varlen;
    for (const std::int64_t channels : {0, 1, 2, 3, 7, 8, 9, 31, 100, 255, 256, 257, 1000}) {
      INFO(channels << " channels");
      const ConvCase data(problem, {.lengths = {9, 9}, .channels = channels, .seed = seed()});
      expect_good(data, Launched(data).run(prepare_for(data)));
    }
  }
}

TEST_CASE("GdnConv.NoTokens", "[gpu][conv]") {
  for (const bool varlen : {false, true}) {
    ConvProblem problem = pool();
    problem.varlen = varlen;
    for (const bool separate : {false, true}) {
      const ConvCase data(problem, {.lengths = {0, 0, 0},
                                    .channels = 72,
                                    .seed = seed(),
                                    .has_flags = true,
                                    .separate_out = separate});
      expect_good(data, Launched(data).run(prepare_for(data)));
    }
  }
}

std::vector<float> values(const GdnMemory& memory, TensorId which, DType dtype) {
  const std::vector<std::byte>& piece = memory[static_cast<std::size_t>(which)];
  const std::vector<std::byte> inside(piece.begin() + kGuardBytes, piece.end() - kGuardBytes);
  const std::vector<double> all = from_bytes(dtype, inside);
  return {all.begin(), all.end()};
}

void store_at(GdnMemory* memory, TensorId which, DType dtype, std::int64_t i, std::int64_t value) {
  std::byte* const at =
      (*memory)[static_cast<std::size_t>(which)].data() + kGuardBytes + i * size_of(dtype);
  store_integer(dtype, at, value);
}

// g is a number from -128, or from the lower bound, to 0, of any finite numbers.
TEST_CASE("GdnConv.RowsOfGatesAreFinite", "[gpu][conv][sanitize]") {
  constexpr float kMost = std::numeric_limits<float>::max();
  const std::vector<float> extremes{0.0f,  -0.0f,  20.0f,  100.0f,  1e4f,  1e30f,
                                    kMost, 1e-30f, -20.0f, -100.0f, -1e4f, -kMost};
  for (const gdn::GateMode mode : kComputedModes) {
    ConvProblem problem = with_rows(split(), mode);
    problem.heads.v = static_cast<int>(2 * extremes.size());
    const ConvCase data(problem, {.lengths = {5, 5}, .seed = seed()});
    GdnMemory memory = data.memory();
    const auto fill = [&](TensorId which, std::size_t run) {
      std::vector<std::byte>& piece = memory[static_cast<std::size_t>(which)];
      const std::size_t count = (piece.size() - 2 * kGuardBytes) / sizeof(float);
      for (std::size_t i = 0; i < count; ++i) {
        store(DType::kF32, piece.data() + kGuardBytes + i * sizeof(float),
              extremes[i / run % extremes.size()]);
      }
    };
    // Channels have each pair of a and dt_bias, heads each A_log.
    fill(TensorId::kA, 1);
    fill(TensorId::kDtBias, extremes.size() + 1);
    fill(TensorId::kALog, 1);
    const Launched launched(data);
    launched.upload(memory);
    const DeviceStream stream = make_stream(gpu());
    REQUIRE(prepare_for(data).launch(stream.get(), launched.args()).ok());
    stream.synchronize().value();
    const std::vector<float> g = values(launched.download(), TensorId::kG, DType::kF32);
    const float least = mode == gdn::GateMode::kComputed ? -128.0f : kLowerBound;
    CHECK(
        std::all_of(g.begin(), g.end(), [&](float x) { return x >= 1.000001f * least && x <= 0; }));
    CHECK(*std::min_element(g.begin(), g.end()) == Approx(least));
    CHECK(*std::max_element(g.begin(), g.end()) == 0);
  }
}

// Every output is NaN, and no state is touched.
void expect_nothing_of_malformed_bounds(const ConvProblem& problem) {
  INFO(problem.to_json());
  const ConvCase data(problem, {.lengths = {4, 1, 3, 300}, .channels = 64, .seed = seed()});
  const gdn::Conv conv = prepare_for(data);
  struct Bad {
    std::int64_t index, value, hint = 0;
  };
  for (const auto& [index, value, hint] :
       {Bad{0, -1}, Bad{2, 3}, Bad{4, 309}, Bad{1, 1 << 30}, Bad{0, -1, 16}, Bad{2, 3, 16},
        Bad{4, 309, 16}, Bad{1, 1 << 30, 16}, Bad{3, -7, 16}}) {
    INFO("cu_seqlens[" << index << "] = " << value << ", max_seqlen " << hint);
    GdnMemory memory = data.memory();
    store_at(&memory, TensorId::kCuSeqlens, DType::kI32, index, value);
    const Launched launched(data);
    launched.upload(memory);
    const DeviceStream stream = make_stream(gpu());
    ConvArgs args = launched.args();
    args.max_seqlen = hint;
    REQUIRE(conv.launch(stream.get(), args).ok());
    stream.synchronize().value();
    GdnMemory after = launched.download();
    const std::vector<float> y = values(after, TensorId::kY, problem.dtype);
    CHECK(std::all_of(y.begin(), y.end(), [](float x) { return std::isnan(x); }));
    const auto piece = static_cast<std::size_t>(TensorId::kY);
    after[piece] = memory[piece];
    CHECK(first_difference(after, memory) == "");
  }
}

TEST_CASE("GdnConv.MalformedCuSeqlens", "[gpu][conv][sanitize]") {
  expect_nothing_of_malformed_bounds(packed(pool()));
  ConvProblem every = packed(), kept = packed(pool());
  every.stored_states = gdn::StoredStates::kEvery;
  kept.checkpoints = gdn::Checkpoints::kBefore;
  kept.checkpoint_every = 3;
  expect_nothing_of_malformed_bounds(every);
  expect_nothing_of_malformed_bounds(kept);
}

struct Change {
  TensorId tensor;
  std::int64_t index, value;
};

// Launches the case with `change` to one of its integers.  Outputs of tokens first ... end - 1, one
// sequence's, are NaN, and its states are not touched; all else is as without the change.
void expect_nan_tokens(const ConvCase& data, const gdn::Conv& conv, const Change& change,
                       std::int64_t first, std::int64_t end) {
  INFO(info_of<ConvArgs>(change.tensor).name << "[" << change.index << "] = " << change.value);
  const Launched launched(data);
  const GdnMemory clean = launched.run(conv);
  GdnMemory memory = data.memory();
  store_at(&memory, change.tensor, DType::kI32, change.index, change.value);
  launched.upload(memory);
  const DeviceStream stream = make_stream(gpu());
  REQUIRE(conv.launch(stream.get(), launched.args()).ok());
  stream.synchronize().value();
  const GdnMemory after = launched.download();
  const std::vector<float> y = values(after, TensorId::kY, data.problem().dtype);
  const std::vector<float> good = values(clean, TensorId::kY, data.problem().dtype);
  const std::int64_t channels = data.options().channels;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::int64_t token = static_cast<std::int64_t>(i) / channels;
    if (token >= first && token < end) {
      CHECK(std::isnan(y[i]));
    } else {
      CHECK((y[i] == good[i] || (std::isnan(y[i]) && std::isnan(good[i]))));
    }
  }
  std::size_t changed = 0;
  for (const TensorId which : {TensorId::kState, TensorId::kStateOut, TensorId::kCheckpoints}) {
    const auto piece = static_cast<std::size_t>(which);
    for (std::size_t i = 0; i < after[piece].size(); ++i) {
      if (after[piece][i] == clean[piece][i]) continue;
      CHECK(after[piece][i] == memory[piece][i]);
      ++changed;
    }
  }
  CHECK(changed > 0);
}

// An index that is no slot, a count that cannot be.
TEST_CASE("GdnConv.WhatOnlyTheDeviceCanSee", "[gpu][conv]") {
  ConvProblem problem = packed(pool());
  problem.from_accepted = true;
  const ConvCase data(problem,
                      {.lengths = {4, 1, 3, 4}, .channels = 64, .columns = 6, .seed = seed()});
  const gdn::Conv conv = prepare_for(data);
  for (const Change& change : {Change{TensorId::kStateIndices, 2, -1},
                               {TensorId::kStateIndices, 2, 1000},
                               {TensorId::kAccepted, 2, -1},
                               {TensorId::kAccepted, 2, 5},
                               {TensorId::kAccepted, 2, 1 << 30}}) {
    expect_nan_tokens(data, conv, change, 5, 8);
  }
}

// Tokens that come a few at a time, on a circular state, are those of one sequence.
TEST_CASE("GdnConv.CircularStatesGoOn", "[gpu][conv]") {
  constexpr std::int64_t kTokens = 40, kChannels = 72;
  ConvProblem problem;
  problem.circular_state = true;
  for (const std::int64_t columns : {3, 4, 7}) {
    const ConvCase all(
        problem, {.lengths = {kTokens}, .channels = kChannels, .columns = columns, .seed = seed()});
    const gdn::Conv conv = prepare_for(all);
    const Launched launched(all);
    const GdnMemory expected = launched.run(conv);
    expect_good(all, expected);
    GdnMemory memory = all.memory();
    const auto piece = [](TensorId which) { return static_cast<std::size_t>(which); };
    std::int32_t before = 0;
    std::memcpy(&before, memory[piece(TensorId::kCacheSeqlens)].data() + kGuardBytes,
                sizeof before);
    std::int64_t token = 0;
    for (const std::int64_t next : {1, 1, 5, 2, 3, 1, 9, 4, 1, 12, 1}) {
      store_at(&memory, TensorId::kCacheSeqlens, DType::kI32, 0, before + token);
      launched.upload(memory);
      ConvArgs args = launched.args();
      for (Tensor* tensor : {&args.x, &args.y}) {
        tensor->data = static_cast<std::byte*>(tensor->data) + 2 * token * kChannels;
        tensor->shape[1] = next;
      }
      const DeviceStream stream = make_stream(gpu());
      REQUIRE(conv.launch(stream.get(), args).ok());
      stream.synchronize().value();
      memory = launched.download();
      token += next;
    }
    REQUIRE(token == kTokens);
    for (const TensorId which : {TensorId::kY, TensorId::kState}) {
      CHECK(memory[piece(which)] == expected[piece(which)]);
    }
  }
}

TEST_CASE("GdnConv.WhatOnlyTheDeviceCanSeeOfCircularStates", "[gpu][conv]") {
  ConvProblem problem = packed(pool());
  problem.circular_state = true;
  const ConvCase data(problem,
                      {.lengths = {4, 1, 3, 4}, .channels = 64, .columns = 6, .seed = seed()});
  const gdn::Conv conv = prepare_for(data);
  for (const std::int64_t count : {-1, -1000}) {
    expect_nan_tokens(data, conv, {TensorId::kCacheSeqlens, 2, count}, 5, 8);
  }
}

// The window after each token, or states at multiples of some tokens, in every form.
std::vector<ConvProblem> in_every_form(const ConvProblem& kept) {
  std::vector<ConvProblem> problems;
  for (const auto layout : {gdn::ConvStateLayout::kColumns, gdn::ConvStateLayout::kChannels}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int width = 2; width <= 4; ++width) {
        for (const bool in_pool : {false, true}) {
          for (const bool varlen : {false, true}) {
            ConvProblem problem = in_pool ? pool(kept) : kept;
            problem.width = width;
            problem.dtype = problem.states.dtype = dtype;
            problem.states.layout = layout;
            problem.states.whole_window = width == 3 || (width == 4 && in_pool);
            problem.varlen = varlen;
            if (width == 2) problem = with_gates(split(problem));
            problems.push_back(problem);
          }
        }
      }
    }
  }
  return problems;
}

TEST_CASE("GdnConv.KeepsTheWindowAfterEachToken", "[gpu][conv][big][slow]") {
  std::vector<ConvProblem> problems;
  for (const bool from_accepted : {false, true}) {
    ConvProblem every;
    every.stored_states = gdn::StoredStates::kEvery;
    every.from_accepted = from_accepted;
    for (const ConvProblem& problem : in_every_form(every)) problems.push_back(problem);
  }
  expect_right(problems);
  ConvProblem fresh;
  fresh.stored_states = gdn::StoredStates::kEvery;
  fresh.states.has_initial = false;
  expect_both_right(fresh);
  expect_both_right(pool(fresh));
}

// A few of each, for the sanitizers.
TEST_CASE("GdnConv.EveryPaddingPolicy", "[gpu][conv][sanitize]") {
  for (const DType index_dtype : {DType::kI32, DType::kI64}) {
    for (const bool varlen : {false, true}) {
      ConvProblem problem = pool(with_gates(split()));
      problem.states.index_dtype = problem.cu_seqlens_dtype = index_dtype;
      problem.varlen = varlen;
      for (const Padding& padding : every_padding(0)) {
        for (const std::int64_t tokens : {1, 37}) {
          const ConvCase data(problem, {.lengths = {tokens, tokens, tokens},
                                        .seed = seed(),
                                        .has_flags = true,
                                        .padding = padding,
                                        .padded = 1});
          expect_good(data, Launched(data).run(prepare_for(data)));
        }
      }
    }
  }
}

TEST_CASE("GdnConv.KeepsStatesOfAFewSequences", "[gpu][conv][sanitize]") {
  for (const bool varlen : {false, true}) {
    ConvProblem every = pool(with_gates(split())), before = pool();
    every.varlen = before.varlen = varlen;
    every.stored_states = gdn::StoredStates::kEvery;
    before.checkpoints = gdn::Checkpoints::kBefore;
    before.checkpoint_every = 2;
    ConvProblem after = before;
    after.checkpoints = gdn::Checkpoints::kAfter;
    after.states.layout = gdn::ConvStateLayout::kChannels;
    after.states.whole_window = true;
    for (ConvProblem problem : {every, before, after}) {
      const ConvCase data(problem, {.lengths = {5, 5, 5},
                                    .channels = 72,
                                    .seed = seed(),
                                    .has_flags = true,
                                    .spare_checkpoints = 1,
                                    .padding = {.slot_id = -1},
                                    .padded = 2});
      expect_good(data, Launched(data).run(prepare_for(data)));
    }
  }
}

// In the memory that they start from, or elsewhere; as many as there may be.
TEST_CASE("GdnConv.StepsInPlaceAndElsewhere", "[gpu][conv]") {
  for (const bool in_pool : {false, true}) {
    for (const bool varlen : {false, true}) {
      ConvProblem problem = in_pool ? pool() : ConvProblem();
      problem.stored_states = gdn::StoredStates::kEvery;
      problem.from_accepted = true;
      problem.varlen = varlen;
      for (const bool separate : {false, true}) {
        std::vector<std::int64_t> lengths(5, 16);
        if (varlen) lengths = {16, 0, 1, 7, 2, 16, 3};
        const ConvCase data(problem, {.lengths = lengths,
                                      .channels = 328,
                                      .seed = seed(),
                                      .has_flags = true,
                                      .separate_out = separate});
        const gdn::Conv conv = prepare_for(data);
        const Launched launched(data);
        const GdnMemory first = launched.run(conv);
        expect_good(data, first);
        for (int i = 0; i < 50; ++i) CHECK(first_difference(launched.run(conv), first) == "");
      }
    }
  }
}

// Tokens that are verified and accepted some at a time, with their states in place, are those of
// one sequence.
TEST_CASE("GdnConv.StepsGoOn", "[gpu][conv]") {
  constexpr std::int64_t kTokens = 4, kRounds = 6, kChannels = 72;
  ConvProblem problem;
  problem.stored_states = gdn::StoredStates::kEvery;
  problem.from_accepted = true;
  const ConvCase all({}, {.lengths = {kRounds * kTokens}, .channels = kChannels, .seed = seed()});
  const GdnMemory expected = Launched(all).run(prepare_for(all));
  const ConvCase round(problem, {.lengths = {kTokens}, .channels = kChannels, .seed = seed()});
  const gdn::Conv conv = prepare_for(round);
  GdnMemory memory = round.memory();
  const auto piece = [](TensorId which) { return static_cast<std::size_t>(which); };
  const auto bytes = [](std::int64_t elements) { return static_cast<std::size_t>(2 * elements); };
  // Step 0 has what the sequence starts from.
  const auto copy = [&](const GdnMemory& from, TensorId which, std::int64_t first,
                        std::int64_t count) {
    std::copy_n(from[piece(which)].data() + kGuardBytes + bytes(first), bytes(count),
                memory[piece(which)].data() + kGuardBytes);
  };
  copy(all.memory(), TensorId::kState, 0, kChannels * 3);
  memory[piece(TensorId::kConvWeight)] = all.memory()[piece(TensorId::kConvWeight)];
  const Launched launched(round);
  std::int64_t token = 0, accepted = 0;
  for (const std::int64_t next : {1, 4, 2, 3, 4, 1}) {
    store_at(&memory, TensorId::kAccepted, DType::kI32, 0, accepted);
    copy(all.memory(), TensorId::kX, token * kChannels, kTokens * kChannels);
    launched.upload(memory);
    const DeviceStream stream = make_stream(gpu());
    REQUIRE(conv.launch(stream.get(), launched.args()).ok());
    stream.synchronize().value();
    memory = launched.download();
    const std::byte* const y = memory[piece(TensorId::kY)].data() + kGuardBytes;
    const std::byte* const right = expected[piece(TensorId::kY)].data() + kGuardBytes;
    CHECK(std::equal(y, y + bytes(kTokens * kChannels), right + bytes(token * kChannels)));
    token += next;
    accepted = next;
  }
}

TEST_CASE("GdnConv.WhatOnlyTheDeviceCanSeeOfSteps", "[gpu][conv]") {
  for (const bool from_accepted : {false, true}) {
    ConvProblem problem = packed(pool());
    problem.stored_states = gdn::StoredStates::kEvery;
    problem.from_accepted = from_accepted;
    // 5 steps of each; the third sequence has tokens 5 to 7.
    const ConvCase data(
        problem, {.lengths = {4, 1, 3, 4}, .channels = 64, .seed = seed(), .separate_out = true});
    const gdn::Conv conv = prepare_for(data);
    expect_nan_tokens(data, conv, {TensorId::kStateOutIndices, 2 * 5 + 1, -1}, 5, 8);
    expect_nan_tokens(data, conv, {TensorId::kStateOutIndices, 2 * 5 + 2, 1 << 20}, 5, 8);
    if (!from_accepted) {
      expect_nan_tokens(data, conv, {TensorId::kStateIndices, 2, 1000}, 5, 8);
      continue;
    }
    for (const std::int64_t count : {-1, 6, 1 << 30}) {
      expect_nan_tokens(data, conv, {TensorId::kAccepted, 2, count}, 5, 8);
    }
  }
}

// More tokens than there are steps: the host cannot see it.
TEST_CASE("GdnConv.TooManyTokensForTheSteps", "[gpu][conv][sanitize]") {
  for (const bool in_pool : {false, true}) {
    ConvProblem problem = in_pool ? packed(pool()) : packed();
    problem.stored_states = gdn::StoredStates::kEvery;
    // 5 steps of each: the first sequence gets the second's tokens too, which is left with none.
    const ConvCase data(problem, {.lengths = {4, 3, 2}, .channels = 64, .seed = seed()});
    const gdn::Conv conv = prepare_for(data);
    const Launched launched(data);
    GdnMemory memory = data.memory();
    store_at(&memory, TensorId::kCuSeqlens, DType::kI32, 1, 7);
    launched.upload(memory);
    const DeviceStream stream = make_stream(gpu());
    REQUIRE(conv.launch(stream.get(), launched.args()).ok());
    stream.synchronize().value();
    const GdnMemory after = launched.download(), clean = launched.run(conv);
    const std::vector<float> y = values(after, TensorId::kY, problem.dtype);
    const std::vector<float> good = values(clean, TensorId::kY, problem.dtype);
    for (std::size_t i = 0; i < y.size(); ++i) {
      CHECK((i < 7 * 64 ? std::isnan(y[i]) : y[i] == good[i]));
    }
    for (const TensorId which : {TensorId::kState, TensorId::kStateOut}) {
      const auto piece = static_cast<std::size_t>(which);
      for (std::size_t i = 0; i < after[piece].size(); ++i) {
        CHECK((after[piece][i] == clean[piece][i] || after[piece][i] == memory[piece][i]));
      }
    }
  }
}

TEST_CASE("GdnConv.KeepsCheckpoints", "[gpu][conv][big][slow]") {
  int every = 0;
  std::vector<ConvProblem> problems;
  for (const gdn::Checkpoints checkpoints : {gdn::Checkpoints::kBefore, gdn::Checkpoints::kAfter}) {
    ConvProblem kept;
    kept.checkpoints = checkpoints;
    for (ConvProblem problem : in_every_form(kept)) {
      problem.checkpoint_every = std::vector{1, 3, 64, 100}[static_cast<std::size_t>(every++ % 4)];
      problems.push_back(problem);
    }
    ++every;  // another one for each form than with the others
    // States that are kept nowhere else.
    for (const bool has_initial : {false, true}) {
      kept.states.store = false;
      kept.states.has_initial = has_initial;
      kept.checkpoint_every = 3;
      problems.push_back(kept);
      problems.push_back(packed(kept));
    }
  }
  expect_right(problems);
}

TEST_CASE("GdnConv.CheckpointsOfLongSequences", "[gpu][conv][big]") {
  for (const bool varlen : {false, true}) {
    for (const gdn::Checkpoints checkpoints :
         {gdn::Checkpoints::kBefore, gdn::Checkpoints::kAfter}) {
      ConvProblem problem = pool();
      problem.varlen = varlen;
      problem.states.whole_window = true;
      problem.checkpoints = checkpoints;
      for (const int every : {1, 3, 64, 100, 1 << 30}) {
        problem.checkpoint_every = every;
        const ConvCase data(problem, {.lengths = {4099, 4099}, .channels = 64, .seed = seed()});
        const gdn::Conv conv = prepare_for(data);
        const Launched launched(data);
        const GdnMemory first = launched.run(conv);
        expect_good(data, first);
        for (int i = 0; i < 30; ++i) CHECK(first_difference(launched.run(conv), first) == "");
      }
      // The same operator, by strides of the launches.
      problem.checkpoint_every = 2;
      for (const std::int64_t stride : {2, 6, 64, 1000}) {
        const ConvCase data(
            problem,
            {.lengths = {4099, 4099}, .channels = 64, .seed = seed(), .checkpoint_every = stride});
        expect_good(data, Launched(data).run(prepare_for(data)));
      }
    }
  }
}

// A sequence whose checkpoints do not fit into its range, or into the tensor.
TEST_CASE("GdnConv.CheckpointsThatDoNotFit", "[gpu][conv][sanitize]") {
  ConvProblem problem = packed(pool());
  problem.checkpoints = gdn::Checkpoints::kAfter;
  problem.checkpoint_every = 2;
  // 2, 2, 100 and 1 checkpoints; the third sequence has tokens 9 to 208, in many runs.
  const ConvCase data(problem,
                      {.lengths = {4, 5, 200, 3}, .channels = 64, .seed = seed(), .tail = 2});
  const gdn::Conv conv = prepare_for(data);
  expect_nan_tokens(data, conv, {TensorId::kCheckpointCuStarts, 2, 5}, 9, 209);
  expect_nan_tokens(data, conv, {TensorId::kCheckpointCuStarts, 4, 106}, 209, 212);
  expect_nan_tokens(data, conv, {TensorId::kCheckpointCuStarts, 4, 104}, 209, 212);
  expect_nan_tokens(data, conv, {TensorId::kCheckpointCuStarts, 0, -1}, 0, 4);
}

// Bit for bit what the reference has: inputs, so what the same states after every token would be.
TEST_CASE("GdnConv.KeepsCheckpointsAtOffsets", "[gpu][conv][big][slow]") {
  ConvProblem kept;
  kept.checkpoints = gdn::Checkpoints::kAt;
  std::vector<ConvProblem> problems = in_every_form(kept);
  for (std::size_t i = 0; i < problems.size(); i += 2) {
    problems[i].states.index_dtype = DType::kI64;
  }
  // States that are kept nowhere else.
  for (const bool has_initial : {false, true}) {
    kept.states.store = false;
    kept.states.has_initial = has_initial;
    problems.push_back(kept);
    problems.push_back(packed(kept));
  }
  expect_right(problems);
}

// In many runs, of which each keeps its own.
TEST_CASE("GdnConv.OffsetsOfLongSequences", "[gpu][conv][sanitize]") {
  for (const bool varlen : {false, true}) {
    for (const bool in_pool : {false, true}) {
      for (const std::int64_t count : {1, 2, 7}) {
        ConvProblem problem = pool();
        problem.varlen = varlen;
        problem.states.whole_window = count == 2;
        problem.checkpoints = gdn::Checkpoints::kAt;
        ConvCaseOptions options{.lengths = {1033, 1033, 1033},
                                .channels = 64,
                                .seed = seed(),
                                .offsets = count,
                                .checkpoints_in_pool = in_pool};
        if (varlen) options.lengths = {1033, 0, 1, 2, 3, 700, 0, 16};
        const ConvCase data(problem, options);
        const gdn::Conv conv = prepare_for(data);
        const Launched launched(data);
        const GdnMemory first = launched.run(conv);
        expect_good(data, first);
        for (int i = 0; i < 5; ++i) CHECK(first_difference(launched.run(conv), first) == "");
      }
    }
  }
}

// Of sequences by themselves, and where an index is padding.
TEST_CASE("GdnConv.OffsetsOfShortSequences", "[gpu][conv][sanitize]") {
  for (const bool varlen : {false, true}) {
    for (const Padding& padding : every_padding(0)) {
      ConvProblem problem = pool(with_gates(split()));
      problem.varlen = varlen;
      problem.checkpoints = gdn::Checkpoints::kAt;
      ConvCaseOptions options{.lengths = {4, 4, 4, 4},
                              .seed = seed(),
                              .has_flags = true,
                              .checkpoints_in_pool = true,
                              .padding = padding,
                              .padded = 2};
      if (varlen) options.lengths = {5, 1, 2, 3, 0, 4};
      const ConvCase data(problem, options);
      expect_good(data, Launched(data).run(prepare_for(data)));
    }
  }
}

// Behind the sequence's end, or in a row behind the last one.
TEST_CASE("GdnConv.OffsetsThatDoNotFit", "[gpu][conv][sanitize]") {
  for (const bool in_pool : {false, true}) {
    ConvProblem problem = packed(pool());
    problem.checkpoints = gdn::Checkpoints::kAt;
    // The third sequence has tokens 9 to 208, in many runs.
    const ConvCase data(problem, {.lengths = {4, 5, 200, 3, 0},
                                  .channels = 64,
                                  .seed = seed(),
                                  .tail = 2,
                                  .offsets = 1,
                                  .checkpoints_in_pool = in_pool});
    const gdn::Conv conv = prepare_for(data);
    for (const std::int64_t offset : {201, 1000, 1 << 30}) {
      expect_nan_tokens(data, conv, {TensorId::kCheckpointOffsets, 2, offset}, 9, 209);
    }
    expect_nan_tokens(data, conv, {TensorId::kCheckpointOffsets, 0, 5}, 0, 4);
  }
}

TEST_CASE("GdnConv.NonFiniteInputsStayInTheirSequence", "[gpu][conv]") {
  const ConvProblem problem = packed(pool(with_gates(split())));
  const ConvCase data(problem, {.lengths = {5, 40, 2, 130}, .seed = seed()});
  const gdn::Conv conv = prepare_for(data);
  const std::int64_t channels = gdn::split_channels(problem);
  const Launched launched(data);
  const GdnMemory clean = launched.run(conv);
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t token : {5, 42, 44}) {  // of the second sequence
      GdnMemory memory = data.memory();
      std::byte* const x = memory[static_cast<std::size_t>(TensorId::kX)].data() + kGuardBytes;
      store(problem.dtype, x + (token * channels + 3) * size_of(problem.dtype), value);
      launched.upload(memory);
      const DeviceStream stream = make_stream(gpu());
      REQUIRE(conv.launch(stream.get(), launched.args()).ok());
      stream.synchronize().value();
      const GdnMemory after = launched.download();
      for (const TensorId which : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
        const std::vector<float> y = values(after, which, problem.dtype);
        const std::vector<float> good = values(clean, which, problem.dtype);
        const std::size_t width = y.size() / 177;
        std::size_t bad = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
          const auto t = static_cast<std::int64_t>(i / width);
          // Head 0 of q, from the token on, as far as the taps reach.
          const bool reached =
              which == TensorId::kQ && i % width < 64 && t >= token && t < token + 4 && t < 45;
          if (!reached) CHECK(y[i] == good[i]);
          bad += std::isfinite(y[i]) ? 0 : 1;
        }
        CHECK((bad > 0) == (which == TensorId::kQ));
      }
    }
  }
}

// Same bits in a graph, with launches with PDL, from several threads, and on every launch.
TEST_CASE("GdnConv.SameBitsHoweverLaunched", "[gpu][conv]") {
  for (const bool varlen : {false, true}) {
    ConvProblem problem = pool(with_gates(split()));
    problem.varlen = varlen;
    const std::vector<std::int64_t> lengths(9, varlen ? 67 : 1);
    const ConvCase data(problem, {.lengths = lengths, .seed = seed()});
    const gdn::Conv conv = prepare_for(data);
    const Launched launched(data);
    ConvArgs args = launched.args();
    constexpr int kTimes = 12;
    const GdnMemory expected = launched.run(conv, args, kTimes);
    const DeviceStream stream = make_stream(gpu());
    const DeviceGraph graph = DeviceGraph::capture(stream, [&] {
                                for (int i = 0; i < kTimes / 4; ++i) {
                                  CUBINERY_RETURN_IF_ERROR(conv.launch(stream.get(), args));
                                }
                                return Status();
                              }).value();
    launched.upload();
    for (int i = 0; i < 4; ++i) graph.launch(stream).value();
    stream.synchronize().value();
    CHECK(first_difference(launched.download(), expected) == "");
    args.enable_pdl = true;
    if (conv.launch(stream.get(), args).code() == Code::kUnsupported) continue;
    stream.synchronize().value();
    CHECK(first_difference(launched.run(conv, args, kTimes), expected) == "");
  }
}

}  // namespace
}  // namespace cubinery::test::gdn_conv_test
