// A toy operator with two paths, on the fake libcuda: what docs/adding_an_operator.md describes
// works.
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "results/record_file.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"
#include "tests/runtime/cached_kernel.h"
#include "tests/runtime/made_up_results.h"
#include "tests/toy/scale_operator.h"
#include "tests/toy/templates/scale_rows/fields.h"
#include "tests/toy/templates/scale_rows_wide/fields.h"

namespace cubinery::toy {
namespace {

using test::FakeDriver;

const Target kHopper = typical_target({9, 0, 'a'});
constexpr std::int64_t kFew = 1 << 10, kMany = 1 << 30;

Planner<ScaleProblem> planner_of(const ScaleProblem& problem, const Target& target = kHopper,
                                 const std::vector<std::string>& options = {}) {
  auto planner = Planner<ScaleProblem>::create(problem, target, options);
  REQUIRE(planner);
  return *std::move(planner);
}

std::string path_at(const Plan& plan, std::int64_t elements) {
  return plan.choice(point_of({}, elements)).path;
}

// A cache directory and a GPU that is not there.
class Bench {
 public:
  Bench() {
    fake->param_bytes = {{"scale_rows", sizeof(ScaleRowsParams)},
                         {"scale_rows_wide", sizeof(ScaleRowsWideParams)}};
  }

  Context context(std::vector<std::string> paths = {}) const {
    Options options;
    options.offline = true;
    options.driver_path = CUBINERY_FAKE_DRIVER;
    options.cache_dir = dir_.path();
    options.template_dirs = {CUBINERY_TEST_DIR "/toy/templates"};
    options.paths = std::move(paths);
    return Context::create(options).value();
  }

  // Stores every kernel that the operator may launch; their names.
  std::set<std::string> prewarm(const ScaleProblem& problem,
                                const std::vector<std::string>& paths = {}) const {
    const Context here = context(paths);
    const auto known = known_results<ScaleProblem>(here);
    const auto specs = kernels_for(problem, here.arch(), known, path_options(here));
    REQUIRE(specs);
    std::set<std::string> names;
    for (const KernelSpec& spec : *specs) {
      REQUIRE_FALSE(test::store_trivial(here, spec, dir_.path()).empty());
      names.insert(spec.kernel);
    }
    return names;
  }

  // `path`'s configuration `number` won.
  void tuned(const ScaleProblem& problem, std::int64_t elements, std::size_t number,
             std::size_t agreed) const {
    const Context here = context();
    const TuningSpace space = planner_of(problem).space();
    const auto templates = toolchain_of(here, path_kernels<ScaleProblem>()).templates;
    const auto values = [&](std::size_t i) { return space.configurations.at(i).values; };
    TuningResult result = test::made_up_result(
        space, {{"elements", elements}}, values(number), "13.0.88",
        templates.find(path_of(values(number)))->second, gpu_identity(here).value());
    result.agreed = values(agreed);
    result.agreed_ms = result.ms;
    result.agreed_templates = templates.find(path_of(values(agreed)))->second;
    const std::string path = results_path(tuning_directory(here), space.op);
    REQUIRE(append_lines(path, to_line(result)).ok());
  }

  FakeDriver fake{CUBINERY_FAKE_DRIVER};

 private:
  test::TempDir dir_;
};

TEST_CASE("Toy.EachSizeHasThePathThatTheModelSays", "[cpu]") {
  const Plan plan = planner_of({}).plan(nullptr);
  CHECK(path_at(plan, kFew) == "portable");
  CHECK(path_at(plan, kMany) == "wide");
  CHECK(plan.choice(point_of({}, kMany)).configuration == "path=wide;vec=4;threads=128");
}

TEST_CASE("Toy.WithBatchInvariantAllSizesHaveOnePath", "[cpu]") {
  const Plan plan = planner_of({.batch_invariant = true}).plan(nullptr);
  CHECK(path_at(plan, kFew) == "portable");
  CHECK(path_at(plan, kMany) == "portable");
}

TEST_CASE("Toy.APathIsRefusedByArchitecture", "[cpu]") {
  const Target ampere = typical_target({8, 0, '\0'});
  const auto planner = planner_of({}, ampere);
  CHECK(path_at(planner.plan(nullptr), kMany) == "portable");
  for (const Configuration& one : planner.space().configurations) {
    CHECK(path_of(one.values) == "portable");
  }
  for (const KernelSpec& spec : planner.kernels({})) CHECK(spec.kernel == "scale_rows");
  const auto none = Planner<ScaleProblem>::create({}, ampere, {"toy_scale=wide"});
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == Code::kUnsupported);
  CHECK(none.error().message() ==
        "toy_scale: no path computes this problem on sm_80 (portable: Options::paths asks for "
        "wide; wide: it needs sm_90 or newer)");
}

TEST_CASE("Toy.APathIsForcedOrExcluded", "[cpu]") {
  const Plan forced = planner_of({}, kHopper, {"toy_scale=wide"}).plan(nullptr);
  CHECK(path_at(forced, kFew) == "wide");
  const Plan excluded = planner_of({}, kHopper, {"other=x", "toy_scale=-wide"}).plan(nullptr);
  CHECK(path_at(excluded, kMany) == "portable");
  const auto unknown = Planner<ScaleProblem>::create({}, kHopper, {"toy_scale=fast"});
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code() == Code::kInvalidArgument);
  CHECK(unknown.error().message() ==
        "Options::paths has \"toy_scale=fast\"; paths of toy_scale: portable, wide");
}

TEST_CASE("Toy.OptionsOfPathsHaveTwoForms", "[cpu]") {
  const Bench bench;
  for (const char* wrong : {"", "toy_scale", "=wide", "toy_scale=", "toy_scale=-"}) {
    Options options;
    options.device = kNoDevice;
    options.arch = "sm_90a";
    options.paths = {wrong};
    const auto context = Context::create(options);
    REQUIRE_FALSE(context);
    CHECK(context.error().code() == Code::kInvalidArgument);
  }
  const Context forced = bench.context({"toy_scale=nothing"});
  CHECK_FALSE(forced.prepare(ScaleProblem{}));
}

TEST_CASE("Toy.TheSpaceHoldsBothPaths", "[cpu]") {
  const TuningSpace space = planner_of({}).space();
  CHECK(space.op == "toy_scale");
  CHECK(space.problem == "dtype=f32");
  CHECK(space.configurations.size() == 3 + 2 * 3);
  CHECK(path_kernels(space) ==
        PathKernels{{"portable", {"scale_rows", "scale_rows", "scale_rows"}},
                    {"wide", std::vector<std::string>(6, "scale_rows_wide")}});
}

TEST_CASE("Toy.ResultsChooseAmongPaths", "[cpu]") {
  const Bench bench;
  const ScaleProblem problem;
  // For few elements the last of the wide path, though all sizes agree on the first.
  bench.tuned(problem, kFew, 8, 0);
  bench.prewarm(problem);
  const Scale scale = bench.context().prepare(problem).value();
  CHECK(scale.choice(kFew).path == "wide");
  CHECK(scale.choice(kFew).rung == Rung::kExact);
  CHECK(scale.choice(kFew).configuration == "path=wide;vec=4;threads=256");
  REQUIRE(scale.launch(nullptr, {.x = Tensor::contiguous(&bench, DType::kF32, {2, 512})}).ok());
  CHECK(bench.fake->launches.back().kernel == "scale_rows_wide");
  CHECK(bench.fake->launches.back().config.gridDimX == 1);

  const ScaleProblem invariant{.batch_invariant = true};
  bench.prewarm(invariant);
  const Scale same = bench.context().prepare(invariant).value();
  CHECK(same.choice(kFew).path == "portable");
  CHECK(same.choice(kFew).rung == Rung::kExact);
  CHECK(same.choice(kMany).path == "portable");

  // A path that is switched off is not taken, whatever was measured.
  const Scale off = bench.context({"toy_scale=-wide"}).prepare(problem).value();
  CHECK(off.choice(kFew).path == "portable");
  CHECK(off.choice(kFew).why.find("cannot be used here") != std::string::npos);
}

TEST_CASE("Toy.PrewarmingTakesThePathsOfTheOptions", "[cpu]") {
  const Bench bench;
  // By default batch_invariant is the first path.
  const ScaleProblem problem{.batch_invariant = true};
  const std::vector<std::string> wide{"toy_scale=wide"};
  CHECK(bench.prewarm(problem, wide) == std::set<std::string>{"scale_rows_wide"});
  const Result<Scale> scale = bench.context(wide).prepare(problem);
  REQUIRE(scale);
  CHECK(scale->choice(kFew).path == "wide");
  CHECK(bench.prewarm({}, {"toy_scale=-wide"}) == std::set<std::string>{"scale_rows"});

  const auto unknown = kernels_for(problem, "sm_90a", {}, {"toy_scale=fast"});
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code() == Code::kInvalidArgument);
  const auto none = kernels_for(problem, "sm_80", {}, wide);
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == Code::kUnsupported);
}

TEST_CASE("Toy.AFieldThatOldResultsDoNotNameHasItsDefault", "[cpu]") {
  Wanted wanted = planner_of({}).wanted();
  CHECK(wanted.match("dtype=f32") == Wanted::Match::kSame);
  CHECK(wanted.match("dtype=bf16") == Wanted::Match::kNone);
  // The problem gets a field.
  wanted.problem += ";flag=false";
  wanted.defaults += ";flag=false";
  CHECK(wanted.match("dtype=f32") == Wanted::Match::kSame);
  wanted.problem = "dtype=f32;flag=true";
  CHECK(wanted.match("dtype=f32") == Wanted::Match::kOutline);
  CHECK(wanted.match("dtype=f32;flag=true") == Wanted::Match::kSame);
  // A newer library's field that we do not know.
  CHECK(wanted.match("dtype=f32;flag=true;other=1") == Wanted::Match::kOutline);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Every block of code in docs/adding_an_operator.md is, line by line, in one of these files.
TEST_CASE("Toy.TheDocumentShowsTheseFiles", "[cpu]") {
  const std::string root = CUBINERY_TEST_DIR "/toy/";
  std::vector<std::string> files;
  for (const char* name : {"scale.h", "scale.cc", "scale_operator.h", "scale_portable.cc",
                           "scale_wide.cc", "templates/scale_rows/key.h",
                           "templates/scale_rows/fields.h", "templates/scale_rows/scale_rows.cu"}) {
    files.push_back(text_of(root + name));
  }
  std::istringstream document(text_of(CUBINERY_TEST_DIR "/../docs/adding_an_operator.md"));
  std::string line, block;
  bool inside = false;
  int blocks = 0;
  while (std::getline(document, line)) {
    if (line.starts_with("```")) {
      if (inside) {
        ++blocks;
        bool found = false;
        for (const std::string& file : files) found = found || file.find(block) != file.npos;
        if (!found) FAIL_CHECK("of no file:\n" << block);
      }
      inside = !inside && line.starts_with("```c");
      block.clear();
    } else if (inside) {
      block += line + "\n";
    }
  }
  CHECK(blocks >= 6);
}

}  // namespace
}  // namespace cubinery::toy
