// Operators on the fake libcuda whose cache directory has results of tuning.
#include <string>
#include <vector>

#include "gdn_decode/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "results/record_file.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/operator/tuning_context.h"
#include "runtime/registry/operators.h"
#include "tests/runtime/fake_prefill.h"
#include "tests/runtime/made_up_results.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery::gdn {
namespace {

using test::decode_keys;
using test::decode_values;
using test::FakeDriver;
using test::planner_of;
using test::prefill_keys;
using test::prefill_values;
using test::PrefillKeys;

// An offline deployment: a cache directory, and a GPU that is not there.
class Deployment {
 public:
  Deployment() {
    fake->param_bytes = {{"gdn_decode", sizeof(GdnDecodeParams)},
                         {"gdn_prefill_chunks", sizeof(GdnPrefillChunksParams)},
                         {"gdn_prefill_scan", sizeof(GdnPrefillScanParams)}};
  }

  // A new process, so to speak.
  Context context() {
    Options options;
    options.offline = true;
    options.driver_path = CUBINERY_FAKE_DRIVER;
    options.cache_dir = dir_.path();
    options.log = [this](LogLevel level, std::string_view text) {
      if (level == LogLevel::kWarning) warnings.append(text).append("\n");
    };
    return Context::create(options).value();
  }

  // With today's templates, unless others are named.
  void tuned(const TuningSpace& space, const Shape& features, std::vector<TunedValue> values,
             std::string templates = "") {
    const Context here = context();
    const Toolchain toolchain = toolchain_of(here, path_kernels(space.op));
    if (templates.empty()) templates = toolchain.templates.find(path_of(values))->second;
    const TuningResult result = test::made_up_result(
        space, features, std::move(values), toolchain.nvrtc, templates, gpu_identity(here).value());
    const std::string path = results_path(tuning_directory(here), space.op);
    REQUIRE(append_lines(path, to_line(result)).ok());
  }

  void prewarm(const std::vector<KernelSpec>& specs) {
    for (const KernelSpec& spec : specs) {
      REQUIRE_FALSE(test::store_trivial(context(), spec, dir_.path()).empty());
    }
  }
  // With what tuning found, as the command line does.
  void prewarm(const Problem& problem) {
    const Context here = context();
    prewarm(kernels(problem, here.arch(), {}, known_results(here, operator_of(problem))).value());
  }

  FakeDriver fake{CUBINERY_FAKE_DRIVER};
  std::string warnings;

 private:
  test::TempDir dir_;
};

std::vector<TunedValue> four_warps(const DecodeProblem& problem = {}) {
  GdnDecodeKey key = decode_keys(problem).wide;
  key.warps = 4;
  return decode_values(key);
}

TEST_CASE("OperatorsLaunchWhatTuningChose", "[cpu]") {
  const DecodeProblem problem;
  Deployment deployment;
  deployment.tuned(planner_of(problem).space(), features_at(problem, point_of(problem, 4)),
                   four_warps());
  deployment.prewarm(problem);
  const Decode decode = deployment.context().prepare(problem).value();
  CHECK(decode.choice(4).rung == Rung::kExact);
  CHECK(decode.choice(4).configuration == to_text(four_warps()));
  CHECK(decode.choice(5).rung == Rung::kExact);
  CHECK(decode.choice(8).rung == Rung::kNearestShape);
  CHECK(decode.choice(4).path == "portable");
  CHECK("path=portable" + decode.kernel(4).info().canonical.substr(
                              decode.kernel(4).info().canonical.find(";warp_v")) ==
        to_text(four_warps()));
  CHECK(decode.choice(-1).configuration == decode.choice(0).configuration);
  CHECK(deployment.warnings.empty());
}

TEST_CASE("WhatWasTunedWithOtherCodeIsPrewarmedAndLaunched", "[cpu]") {
  const DecodeProblem problem{.key_dim = 64};  // the library has no results for it
  Deployment deployment;
  deployment.tuned(planner_of(problem).space(), features_at(problem, point_of(problem, 4)),
                   four_warps(problem), "other templates");
  deployment.prewarm(problem);
  const Decode decode = deployment.context().prepare(problem).value();
  CHECK(decode.choice(4).rung == Rung::kStale);
  CHECK(decode.choice(4).configuration == to_text(four_warps(problem)));
  CHECK(decode.choice(4).why.ends_with("; stale: the kernels' templates have changed"));
  CHECK(deployment.warnings.empty());
}

TEST_CASE("ADeploymentWithoutTheTunedKernelsGoesOn", "[cpu]") {
  const DecodeProblem problem;
  Deployment deployment;
  deployment.prewarm(kernels_for(problem, "sm_90a", {}).value());  // before it was tuned
  deployment.tuned(planner_of(problem).space(), features_at(problem, point_of(problem, 4)),
                   four_warps());
  const Decode decode = deployment.context().prepare(problem).value();
  CHECK(decode.choice(4).rung == Rung::kDefault);
  CHECK(decode.choice(4).why.starts_with("the kernels that tuning chose cannot be had: "));
  CHECK(deployment.warnings.find("gdn_decode: the kernels that tuning chose cannot be had: ") !=
        std::string::npos);
  CHECK_FALSE(deployment.context().prepare(DecodeProblem{.key_dim = 64}));  // nothing at all
}

TEST_CASE("TheLongestSequenceChoosesTheScan", "[cpu]") {
  const PrefillProblem problem{.varlen = true};
  const PrefillSize even{.tokens = 1000, .sequences = 4, .max_seqlen = 250};
  const PrefillSize skewed{.tokens = 1000, .sequences = 4, .max_seqlen = 1000};
  const PrefillKeys keys = prefill_keys(problem);
  const TuningSpace space = planner_of(problem).space();
  Deployment deployment;
  deployment.tuned(space, features_at(problem, point_of(problem, even)),
                   prefill_values(keys.chunks, keys.scans.front()));
  deployment.tuned(space, features_at(problem, point_of(problem, skewed)),
                   prefill_values(keys.chunks, keys.scans.back()));
  deployment.prewarm(problem);
  const Prefill prefill = deployment.context().prepare(problem).value();
  CHECK(prefill.choice(even).rung == Rung::kExact);
  CHECK(prefill.choice(skewed).rung == Rung::kExact);
  CHECK(prefill.choice({.tokens = 1000, .sequences = 4}).configuration ==
        prefill.choice(even).configuration);

  const test::FakePrefill arguments(problem);  // for its arguments alone
  PrefillArgs args = arguments.args(4, 1000);
  const auto columns = [&](std::int64_t longest) {
    args.max_seqlen = longest;
    deployment.fake->launches.clear();
    REQUIRE(prefill.launch(nullptr, args, arguments.workspace(4, 1000)).ok());
    return 4 * problem.heads.count() * problem.value_dim /
           static_cast<int>(deployment.fake->launches.back().config.gridDimX);
  };
  CHECK(columns(250) == 16 * keys.scans.front().warps);
  CHECK(columns(1000) == 16 * keys.scans.back().warps);
  CHECK(columns(0) == columns(250));
}

// No axis says how many channels a convolution has that splits them: the problem does.
TEST_CASE("ResultsOfASplitConvolutionAnswerForItsChannels", "[cpu]") {
  ConvProblem problem;
  problem.split_qkv = true;
  problem.varlen = true;
  const auto planner = test::planner_of(problem);
  const auto won = test::values_in(
      problem, "path=portable;lane_channels=8;ahead=12;warps=2;resident=256;together=1");
  const Shape features{{"sequences", 1}, {"tokens", 2048}, {"channels", 8192}};
  Wanted wanted = planner.wanted();
  wanted.gpu = test::fake_gpu();
  wanted.toolchain = {.nvrtc = "13.0", .templates = {{"portable", "digest"}}};
  const Ladder ladder(wanted,
                      {test::made_up_result(planner.space(), features, won, "13.0", "digest")});
  const Plan plan = planner.plan(&ladder);
  const Point here = point_of(problem, {.sequences = 1, .tokens = 2048});
  CHECK(plan.choice(here).rung == Rung::kExact);
  CHECK(plan.candidate(here).values() == won);
  CHECK(plan.choice(point_of(problem, {.sequences = 1, .tokens = 1})).rung == Rung::kDefault);
}

TEST_CASE("WithoutADeviceNothingIsKnown", "[cpu]") {
  Options options;
  options.device = kNoDevice;
  options.arch = "sm_90a";
  options.offline = true;
  options.use_disk_cache = false;
  const auto decode = Context::create(options)->prepare(DecodeProblem{});
  REQUIRE_FALSE(decode);
}

}  // namespace
}  // namespace cubinery::gdn
