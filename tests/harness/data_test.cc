// What tuning launches: problems, operands, shapes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/identity.h"
#include "harness/check.h"
#include "harness/draw.h"
#include "harness/operands.h"
#include "harness/operators.h"
#include "harness/rounding.h"
#include "harness/shapes.h"
#include "harness/tunable.h"
#include "results/shape.h"
#include "tests/catch.h"
#include "tests/tuner/tiny.h"

namespace cubinery {
namespace {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::GateMode;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;

TEST_CASE("SmallProblemsKeepTheGroups", "[cpu]") {
  PrefillProblem problem;
  problem.heads.q = problem.heads.k = 16;
  problem.heads.v = 64;
  problem.checkpoint_every = 4096;
  const PrefillProblem grouped = small_problem(problem);
  CHECK(grouped.heads.k == 1);
  CHECK(grouped.heads.q == 1);
  CHECK(grouped.heads.v == 4);
  CHECK(grouped.checkpoint_every == 64);
  problem.heads.v = 16;
  CHECK(small_problem(problem).heads.k == 2);
  CHECK(small_problem(problem).heads.v == 2);
  problem.heads.q = 64;
  problem.heads.k = problem.heads.v = 1;  // groups of 64 are taken as groups of 4
  CHECK(small_problem(problem).heads.q == 4);
  CHECK(small_problem(problem).check().ok());
}

// The floors that docs/performance.md refers to.
TEST_CASE("LeastBytesCountEveryOperandOnce", "[cpu]") {
  gdn::DecodeProblem decode;
  decode.inputs.gate_dtype = decode.inputs.beta_dtype = DType::kBF16;
  decode.states.location = StateLocation::kPool;
  const std::int64_t states = 2 * 32 * 128 * 128 * 4, rows = (2 * 16 + 2 * 32) * 128 * 2;
  CHECK(least_bytes(as_prefill(decode), {.lengths = std::vector<std::int64_t>(8, 1)}) ==
        8 * (states + rows + 32 * (2 + 2) + 4));
  PrefillProblem prefill;
  prefill.heads.v = 16;
  prefill.varlen = true;
  prefill.states.has_initial = false;
  CHECK(least_bytes(prefill, {.lengths = {1000, 24}}) ==
        1024 * (4 * 16 * 128 * 2 + 16 * (4 + 4)) + 2 * 16 * 128 * 128 * 4);
  prefill.inputs.decay = gdn::Decay::kChannel;  // a row of 128 in place of a number
  CHECK(least_bytes(prefill, {.lengths = {1000, 24}}) ==
        1024 * (4 * 16 * 128 * 2 + 16 * (128 * 4 + 4)) + 2 * 16 * 128 * 128 * 4);
  prefill.inputs.decay = gdn::Decay::kHead;
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
  const PrefillProblem problem = test::tiny_prefill();
  const GdnPatterns patterns(problem, {.seed = 6});
  const std::vector<double> k = from_bytes(problem.dtype, patterns.of(TensorId::kK));
  REQUIRE(k.size() == idx(GdnPatterns::kRows * problem.key_dim));
  double sum = 0;
  for (std::size_t d = 0; d < 16; ++d) sum += k[d] * k[d];
  CHECK(std::abs(sum - 1) < 0.02);  // unit rows where the kernel does not make them so
  CHECK(patterns.of(TensorId::kG).size() == idx(GdnPatterns::kRows * 2 * 4));
  CHECK(patterns.of(TensorId::kALog).empty());
  PrefillProblem channels = problem;
  channels.inputs.decay = gdn::Decay::kChannel;
  channels.inputs.gate_mode = GateMode::kComputed;
  const GdnPatterns rows(channels, {.seed = 6});
  const std::size_t decays = idx(2 * problem.key_dim);
  CHECK(rows.of(TensorId::kG).size() == idx(GdnPatterns::kRows) * decays * 4);
  CHECK(rows.of(TensorId::kDtBias).size() == decays * 4);
  CHECK(rows.of(TensorId::kALog).size() == 2 * 4);
  PrefillProblem eight = problem;
  eight.heads.q = eight.heads.k = eight.heads.v = 8;
  const GdnPatterns qwen(eight, {.seed = 6});
  CHECK(std::count(qwen.decay().begin(), qwen.decay().end(), 0.0) == 2);
}

// What is timed has heads that never decay and heads that do, however few there are.
TEST_CASE("TimedOperandsHaveHeadsThatNeverDecay", "[cpu]") {
  for (const int heads : {2, 4, 8, 16, 32, 64}) {
    PrefillProblem problem = test::tiny_prefill();
    problem.heads.q = problem.heads.k = problem.heads.v = heads;
    const GdnPatterns qwen(problem, GdnOperands::Options{}.data);
    const auto still = std::count(qwen.decay().begin(), qwen.decay().end(), 0.0);
    CHECK(still == std::max(1, heads / 4));
  }
}

// Problems and data of every kind of number that is drawn.
std::vector<std::pair<GdnProblem, DataOptions>> drawn_problems() {
  std::vector<std::pair<GdnProblem, DataOptions>> all;
  for (const GateDistribution gates : kGateDistributions) {
    for (const GateMode mode :
         {GateMode::kNone, GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
      for (const BetaMode beta : {BetaMode::kOne, BetaMode::kGiven, BetaMode::kLogit}) {
        GdnProblem problem = test::tiny_prefill();
        problem.output_norm = gdn::OutputNorm::kGatedRms;
        problem.norm_weight_dtype = DType::kBF16;
        problem.inputs.gate_mode = mode;
        problem.inputs.beta_mode = beta;
        problem.inputs.a_log_dtype = problem.inputs.beta_dtype = DType::kBF16;
        problem.inputs.dt_bias_dtype = DType::kF16;
        problem.states.dtype = beta == BetaMode::kOne ? DType::kBF16 : DType::kF32;
        problem.inputs.use_qk_l2norm = beta == BetaMode::kLogit;
        problem.varlen = mode != GateMode::kLog;
        problem.states.location =
            mode == GateMode::kNone ? StateLocation::kDense : StateLocation::kPool;
        problem.states.layout = mode == GateMode::kAlpha ? StateLayout::kKV : StateLayout::kVK;
        problem.checkpoints = Checkpoints::kBefore;
        problem.checkpoint_every = 16;
        all.push_back({problem, {.seed = 6, .gates = gates, .key_correlation = 0.9}});
      }
    }
  }
  return all;
}

bool is_of_conv(TensorId tensor) {
  return tensor >= TensorId::kX && tensor <= TensorId::kConvStateOut;
}

// Which none of these problems has.
bool is_of_offsets(TensorId tensor) {
  return tensor == TensorId::kCheckpointOffsets || tensor == TensorId::kCheckpointSlots;
}

// A digest of all bytes that each tensor was given.
class Digests {
 public:
  void add(const std::string& name, const std::vector<std::byte>& bytes) {
    std::string& digest = all_[name];
    digest.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    digest = digest_of(digest).substr(0, 12);
  }
  void expect(const std::map<std::string, std::string>& expected) const {
    for (const auto& [name, digest] : all_) UNSCOPED_INFO(name << " " << digest);
    CHECK(all_ == expected);
  }

 private:
  std::map<std::string, std::string> all_;
};

// Measurements and the budgets of tests are of these numbers.  Other processors may round the last
// bit of a sum otherwise.
#if defined(__x86_64__)
TEST_CASE("DrawnNumbersStayTheSame", "[cpu]") {
  Digests digests;
  for (const auto& [problem, data] : drawn_problems()) {
    const CaseOptions options{.seed = data.seed,
                              .gates = data.gates,
                              .key_correlation = data.key_correlation,
                              .separate_out = true,
                              .write_indices = true,
                              .parents = DType::kI32};
    const GdnCase made(problem, uniform(3, 21), options);
    for (std::size_t i = 0; i < kTensors.size(); ++i) {
      const TensorId id = kTensors[i].id;
      if (id >= TensorId::kX || is_of_offsets(id)) continue;
      digests.add(std::string(kTensors[i].name), made.memory()[i]);
    }
  }
  digests.expect({{"A_log", "1f893b04a978"},
                  {"beta", "4f10af9d85ff"},
                  {"checkpoint_cu_starts", "22ba4bbe8758"},
                  {"checkpoints", "4416b319cdec"},
                  {"cu_seqlens", "0b49c93ec58c"},
                  {"dt_bias", "ad9d8180ca33"},
                  {"g", "e701ff210219"},
                  {"k", "aa14bb5cc47c"},
                  {"norm_weight", "87e3191f29db"},
                  {"o", "122f4805458d"},
                  {"parents", "fba518951058"},
                  {"q", "ed938e16f2fd"},
                  {"state", "933e6c7adde4"},
                  {"state_indices", "0c64d18ac633"},
                  {"state_out", "e35c3f8df72c"},
                  {"state_out_indices", "38fdbfec40a9"},
                  {"v", "8d435cf01567"},
                  {"z", "6a062ad95a9e"}});
}

TEST_CASE("NumbersOfAConvolutionStayTheSame", "[cpu]") {
  GdnProblem problem = test::tiny_prefill();
  problem.varlen = true;
  problem.conv = {.width = 4, .has_bias = true};
  const GdnCase made(problem, uniform(3, 1), {.separate_out = true});
  const GdnPatterns patterns(problem, {});
  Digests drawn, repeated;
  for (const TensorInfo& info : kTensors) {
    if (!is_of_conv(info.id)) continue;
    drawn.add(std::string(info.name), made.memory()[static_cast<std::size_t>(info.id)]);
    if (is_drawn(info.id)) repeated.add(std::string(info.name), patterns.of(info.id));
  }
  drawn.expect({{"conv_bias", "e2251b1f5370"},
                {"conv_state", "75f433fa6017"},
                {"conv_state_out", "deb592aeb975"},
                {"conv_weight", "61622b81c9fa"},
                {"x", "48f7ca7383d1"}});
  repeated.expect({{"conv_bias", "9eacbad30835"},
                   {"conv_state", "a46b506062c8"},
                   {"conv_weight", "89a6d26027b4"},
                   {"x", "0468b25149f4"}});
}

TEST_CASE("RepeatedNumbersStayTheSame", "[cpu]") {
  Digests digests;
  for (const auto& [problem, data] : drawn_problems()) {
    const GdnPatterns patterns(problem, data);
    for (const TensorInfo& info : kTensors) {
      if (!is_drawn(info.id) || is_of_conv(info.id)) continue;
      digests.add(std::string(info.name), patterns.of(info.id));
    }
    const std::vector<float> decay(patterns.decay().begin(), patterns.decay().end());
    digests.add("decay", to_bytes(DType::kF32, decay));
  }
  digests.expect({{"A_log", "ca667fdcc34d"},
                  {"beta", "c7efd12872d0"},
                  {"decay", "c4db10b47b8f"},
                  {"dt_bias", "5985d6c8b5fb"},
                  {"g", "7e56d0b9fe10"},
                  {"k", "af7678c43235"},
                  {"norm_weight", "86880bcc94dd"},
                  {"q", "4a542845bfa2"},
                  {"state", "11e9925ebf72"},
                  {"v", "125b78470c47"},
                  {"z", "2a1280c75c88"}});
}
#endif

TEST_CASE("Fp8RoundsToNearestEvenAndSaturates", "[cpu]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // The largest number, the smallest normal one, and the smallest.
  for (const auto& [dtype, largest, normal, smallest] :
       {std::tuple{DType::kF8E4M3, 448.0f, 0x1p-6f, 0x1p-9f},
        {DType::kF8E5M2, 57344.0f, 0x1p-14f, 0x1p-16f}}) {
    const Fp8Format& format = fp8_format(dtype);
    const auto value = [&](int byte) {
      return float_from_fp8(format, static_cast<std::uint8_t>(byte));
    };
    const auto byte = [&](float x) { return static_cast<int>(fp8_from_float(format, x)); };
    CHECK(value(1) == smallest);
    CHECK(value(1 << format.fraction_bits) == normal);
    for (int at = 0; at < byte(largest); ++at) {
      const float x = value(at), next = value(at + 1), middle = (x + next) / 2;
      INFO(x << " and " << next);
      CHECK(x < next);
      CHECK(byte(x) == at);
      CHECK(byte(-x) == at + 0x80);
      CHECK(byte(middle) == at + at % 2);
      CHECK(byte(std::nextafter(middle, 0.0f)) == at);
      CHECK(byte(std::nextafter(middle, next)) == at + 1);
    }
    for (const float beyond : {largest * 1.01f, largest * 1.2f, 1e30f, kInfinity}) {
      CHECK(rounded(dtype, beyond) == largest);
      CHECK(rounded(dtype, -beyond) == -largest);
    }
    CHECK(std::isnan(rounded(dtype, std::numeric_limits<float>::quiet_NaN())));
    CHECK(std::isnan(value(0x7f)));
  }
  CHECK(float_from_fp8(kE5M2, 0xfc) == -kInfinity);
  CHECK(float_from_fp8(kE4M3, 0x7e) == 448);
}

TEST_CASE("DecodeShapes", "[cpu]") {
  const gdn::DecodeProblem problem;  // 16, 16 and 32 heads
  const auto same = gdn_shape(problem, {{"batch", 8}});
  REQUIRE(same);
  CHECK(same->lengths == std::vector<std::int64_t>(8, 1));
  CHECK(same->problem.heads.count() == 32);
  const auto more = gdn_shape(problem, {{"batch", 8}, {"k_heads", 32}, {"v_heads", 64}});
  REQUIRE(more);
  CHECK(more->problem.heads.q == 16);
  CHECK(more->problem.heads.k == 32);
  CHECK(more->problem.heads.v == 64);
  for (const Shape& shape :
       {Shape{}, Shape{{"v_heads", 32}}, Shape{{"batch", 0}}, Shape{{"batch", 8}, {"v_heads", 33}},
        Shape{{"batch", 8}, {"rows", 1}}, Shape{{"tokens", 8}}}) {
    const auto refused = gdn_shape(problem, shape);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("VerifyShapes", "[cpu]") {
  const gdn::VerifyProblem problem{.draft_tokens = 8};
  const auto same = gdn_shape(problem, {{"batch", 3}, {"tokens_each", 5}});
  REQUIRE(same);
  CHECK(same->lengths == std::vector<std::int64_t>(3, 5));
  const auto rank = gdn_shape(problem, {{"batch", 3}, {"tokens_each", 8}, {"v_heads", 64}});
  REQUIRE(rank);
  CHECK(rank->problem.heads.count() == 64);
  CHECK(gdn_features(problem, {{"batch", 3}, {"tokens_each", 5}}) ==
        Shape{{"states", 96}, {"tokens", 5}});
  for (const Shape& shape :
       {Shape{}, Shape{{"batch", 8}}, Shape{{"tokens_each", 4}},
        Shape{{"batch", 0}, {"tokens_each", 4}}, Shape{{"batch", 8}, {"tokens_each", 9}},
        Shape{{"batch", 8}, {"tokens", 4}}, Shape{{"batch", 1 << 23}, {"tokens_each", 4}}}) {
    const auto refused = gdn_shape(problem, shape);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("CommitShapes", "[cpu]") {
  const gdn::CommitProblem problem{.draft_tokens = 8};
  const auto same = gdn_shape(problem, {{"batch", 3}});
  REQUIRE(same);
  CHECK(same->lengths == std::vector<std::int64_t>(3, 8));
  CHECK(gdn_shape(problem, {{"batch", 3}, {"v_heads", 64}})->problem.heads.count() == 64);
  CHECK(gdn_features(problem, {{"batch", 3}}) == Shape{{"states", 96}});
  for (const Shape& shape : {Shape{}, Shape{{"batch", 0}}, Shape{{"batch", 8}, {"tokens_each", 4}},
                             Shape{{"batch", 1 << 23}}}) {
    const auto refused = gdn_shape(problem, shape);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("ConvShapes", "[cpu]") {
  const gdn::ConvProblem split{.split_qkv = true, .varlen = true};
  const auto same = gdn_shape(split, {{"tokens", 10}, {"sequences", 3}});
  REQUIRE(same);
  CHECK(same->lengths == std::vector<std::int64_t>{4, 3, 3});
  CHECK(same->channels == 8192);
  CHECK(gdn_shape(split, {{"tokens", 1}, {"sequences", 1}, {"v_heads", 64}})->channels == 12288);
  CHECK(gdn_features(split, {{"tokens", 10}, {"sequences", 3}}) ==
        Shape{{"sequences", 3}, {"tokens", 4}, {"channels", 8192}});
  const gdn::ConvProblem plain;
  CHECK(gdn_features(plain, {{"tokens", 8}, {"sequences", 8}, {"channels", 640}}) ==
        Shape{{"sequences", 8}, {"tokens", 1}, {"channels", 640}});
  const auto refused = [](const gdn::ConvProblem& problem, const Shape& shape) {
    const auto made = gdn_shape(problem, shape);
    REQUIRE_FALSE(made);
    CHECK(made.error().code() == Code::kInvalidArgument);
    return std::string(made.error().message());
  };
  CHECK(refused(plain, {{"tokens", 8}, {"sequences", 8}}) ==
        "gdn_conv: shape \"tokens=8;sequences=8\": channels is missing");
  CHECK(refused(split, {{"tokens", 8}, {"sequences", 8}, {"channels", 8192}}) ==
        "gdn_conv: shape \"tokens=8;sequences=8;channels=8192\": channels are those of q, k and v, "
        "split_qkv is true");
  CHECK(refused(plain, {{"tokens", 9}, {"sequences", 8}, {"channels", 8}})
            .ends_with("sequences of the problem have one length, varlen is false"));
  CHECK(refused(plain, {{"tokens", 8}, {"sequences", 8}, {"channels", 1 << 21}})
            .ends_with("channels must be at most 1048576"));
  CHECK(refused(split, {{"batch", 8}}).ends_with("tokens is missing"));
}

TEST_CASE("PrefillShapes", "[cpu]") {
  PrefillProblem problem;
  problem.varlen = true;
  using Lengths = std::vector<std::int64_t>;
  CHECK(gdn_shape(problem, {{"tokens", 10}, {"sequences", 3}})->lengths == Lengths{4, 3, 3});
  CHECK(gdn_shape(problem, {{"tokens", 10}, {"sequences", 3}, {"max_seqlen", 7}})->lengths ==
        Lengths{7, 2, 1});
  CHECK(gdn_shape(problem, {{"tokens", 10}, {"sequences", 3}, {"max_seqlen", 8}})->lengths ==
        Lengths{8, 1, 1});
  CHECK(gdn_shape(problem, {{"tokens", 10}, {"sequences", 1}, {"max_seqlen", 10}})->lengths ==
        Lengths{10});
  const auto rank = gdn_shape(
      problem, {{"tokens", 10}, {"sequences", 1}, {"q_heads", 2}, {"k_heads", 2}, {"v_heads", 8}});
  REQUIRE(rank);
  CHECK(rank->problem.heads.k == 2);
  CHECK(rank->problem.heads.count() == 8);
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

// Lists of their lengths would eat the memory, products with heads overflow.
TEST_CASE("ShapesBeyondAnyGpuAreRefused", "[cpu]") {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto why = [](const auto& problem, const Shape& shape) {
    const auto refused = gdn_shape(problem, shape);
    REQUIRE_FALSE(refused);
    return std::string(refused.error().message());
  };
  const gdn::DecodeProblem decode;
  CHECK(gdn_shape(decode, {{"batch", 4194304}}));
  CHECK(why(decode, {{"batch", kMax}}) ==
        "gdn_decode: shape \"batch=9223372036854775807\": batch must be at most 4194304");
  CHECK(gdn_features(decode, {{"batch", kMax}}) == Shape{{"batch", kMax}});
  const PrefillProblem prefill{.varlen = true};
  CHECK(why(prefill, {{"tokens", kMax}, {"sequences", 1}})
            .find(": tokens must be at most 1073741824") != std::string::npos);
  CHECK(why(prefill, {{"tokens", kMax}, {"sequences", kMax}})
            .find(": sequences must be at most 4194304") != std::string::npos);
  const Shape largest{{"tokens", 1 << 30},
                      {"sequences", 1 << 22},
                      {"q_heads", 1 << 16},
                      {"k_heads", 1 << 16},
                      {"v_heads", 1 << 16}};
  CHECK(*size_in(gdn_features(prefill, largest), "states") == std::int64_t{1} << 38);
  using Harness = HarnessOf<PrefillProblem>;
  const auto made = gdn_shape(prefill, largest);
  REQUIRE(made);
  CHECK(Harness::most_workspace_bytes(made->problem, Target{}, made->lengths) > std::size_t{1}
                                                                                    << 40);
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
  const auto verify = make_tunable(context, gdn::VerifyProblem{}).value();
  const Shape drafts{{"batch", 8}, {"tokens_each", 4}};
  CHECK(verify->features(drafts) == Shape{{"states", 256}, {"tokens", 4}});
  CHECK(verify->default_configuration(drafts) < verify->space().configurations.size());
  CHECK(verify->workload(drafts).error().code() == Code::kUnsupported);
  CHECK(verify->check(0).error().code() == Code::kUnsupported);
  const auto commit = make_tunable(context, gdn::CommitProblem{}).value();
  CHECK(commit->features({{"batch", 8}}) == Shape{{"states", 256}});
  CHECK(commit->default_configuration({{"batch", 8}}) < commit->space().configurations.size());
  CHECK(commit->workload({{"batch", 8}}).error().code() == Code::kUnsupported);
  CHECK(commit->check(0).error().code() == Code::kUnsupported);
  const auto conv = make_tunable(context, gdn::ConvProblem{.split_qkv = true}).value();
  const Shape steps{{"tokens", 8}, {"sequences", 8}};
  CHECK(conv->features(steps) == Shape{{"sequences", 8}, {"tokens", 1}, {"channels", 8192}});
  CHECK(conv->default_configuration(steps) < conv->space().configurations.size());
  CHECK(conv->workload(steps).error().code() == Code::kUnsupported);
  CHECK(conv->check(0).error().code() == Code::kUnsupported);
  PrefillProblem problem;
  problem.varlen = true;
  const auto prefill = make_tunable(context, problem).value();
  const Shape shape{{"tokens", 8192}, {"sequences", 4}, {"max_seqlen", 4096}};
  CHECK(prefill->features(shape) ==
        Shape{{"states", 128}, {"length", 2048}, {"skew", 2}, {"group", 2}});
  CHECK(prefill->default_configuration(shape) < prefill->space().configurations.size());
  CHECK(prefill->check(0).error().code() == Code::kUnsupported);
  options.paths = {"gdn_prefill=segments"};
  const auto split = make_tunable(Context::create(options).value(), problem).value();
  CHECK(split->default_configuration(shape) < split->space().configurations.size());
  problem.key_dim = 17;
  CHECK(make_tunable(context, problem).error().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace cubinery
