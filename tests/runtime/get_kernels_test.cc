// All kernels of an operator at once, on a fake libcuda.
#include "runtime/jit/get_kernels.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cubinery/gdn.h"
#include "cubinery/gdn_models.h"
#include "gdn_decode/fields.h"
#include "runtime/jit/context_state.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"
#include "tests/runtime/cached_kernel.h"
#include "tests/runtime/fake_operator.h"

namespace cubinery {
namespace {

using test::FakeDriver;
using test::store_trivial;
using test::TempDir;

std::vector<KernelSpec> decode_specs() {
  std::vector<KernelSpec> specs;
  for (const int warps : {1, 2, 4}) {
    specs.push_back(spec_of(GdnDecodeKey{.warps = warps}).value());
  }
  return specs;
}

Context offline_context(const TempDir& dir) {
  return Context::create(
             {.offline = true, .driver_path = CUBINERY_FAKE_DRIVER, .cache_dir = dir.path()})
      .value();
}

TEST_CASE("KernelsComeInTheOrderOfTheirSpecs", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  const TempDir dir;
  const Context context = offline_context(dir);
  const std::vector<KernelSpec> specs = decode_specs();
  for (const KernelSpec& spec : specs) {
    fake->param_bytes[spec.kernel] = spec.param_bytes;
    REQUIRE_FALSE(store_trivial(context, spec, dir.path()).empty());
  }
  const Result<std::vector<Kernel>> kernels = get_kernels(context, specs);
  REQUIRE(kernels);
  REQUIRE(kernels->size() == specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    CHECK((*kernels)[i].info().canonical == specs[i].canonical);
  }
  CHECK(context.stats().disk_hits == specs.size());
  CHECK(fake->loaders == std::set{std::this_thread::get_id()});
  CHECK(get_kernels(context, {}).value().empty());
}

TEST_CASE("TheFirstKernelThatFailsIsTheError", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  const TempDir dir;
  const Context context = offline_context(dir);
  const std::vector<KernelSpec> specs = decode_specs();
  fake->param_bytes[specs[0].kernel] = specs[0].param_bytes;
  REQUIRE_FALSE(store_trivial(context, specs[0], dir.path()).empty());
  const Result<std::vector<Kernel>> kernels = get_kernels(context, specs);
  REQUIRE_FALSE(kernels);
  CHECK(kernels.error().code() == Code::kNotCached);
  CHECK(kernels.error().message().find(specs[1].canonical) != std::string::npos);
}

TEST_CASE("AnOperatorWhoseKernelsAreThereOpensNoCompiler", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  const TempDir dir;
  const gdn::DecodeProblem decode;
  const gdn::PrefillProblem prefill;
  (void)test::fake_operator(fake, dir, decode);
  (void)test::fake_operator(fake, dir, prefill);
  const Context context =
      Context::create({.driver_path = CUBINERY_FAKE_DRIVER, .cache_dir = dir.path()}).value();
  CHECK(context.prepare(decode));
  CHECK(context.prepare(prefill));
  CHECK_FALSE(context.state().knows(Compiler::kNvrtc));
  CHECK(context.stats().misses == 0);
}

// Of several operators, of which two want the same kernels.
TEST_CASE("AListOfProblemsIsOneCall", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  const TempDir dir;
  const gdn::DecodeProblem decode, more_heads{.heads = {.v = 64}};
  const gdn::CommitProblem commit;
  const Context context = offline_context(dir);
  std::vector<std::string> expected;
  const auto add = [&](const std::vector<KernelSpec>& specs) {
    for (const KernelSpec& spec : specs) {
      REQUIRE_FALSE(store_trivial(context, spec, dir.path()).empty());
      expected.push_back(spec.canonical);
    }
  };
  add(decode.kernels(context.arch()).value());
  const std::size_t of_decode = expected.size();
  REQUIRE(more_heads.kernels(context.arch()).value().size() == of_decode);
  const std::vector<gdn::AnyProblem> problems = {decode, more_heads, commit, decode};
  const Result<std::vector<CompiledKernel>> missing = gdn::compile(context, problems);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code() == Code::kNotCached);
  CHECK(missing.error().message().find("gdn_commit") != std::string_view::npos);
  add(commit.kernels(context.arch()).value());
  const Context again = offline_context(dir);
  const Result<std::vector<CompiledKernel>> kernels = gdn::compile(again, problems);
  REQUIRE(kernels);
  std::vector<std::string> found;
  for (const CompiledKernel& kernel : *kernels) found.push_back(kernel.info.canonical);
  CHECK(found == expected);
  CHECK(again.stats().disk_hits == expected.size());
  CHECK(gdn::compile(context, {}).value().empty());
}

TEST_CASE("AProblemOfAListIsRefusedByItsPlace", "[cpu]") {
  const FakeDriver fake(CUBINERY_FAKE_DRIVER);
  const TempDir dir;
  const Context context = offline_context(dir);
  const auto refused = [&](const gdn::AnyProblem& second) {
    const std::vector<gdn::AnyProblem> problems = {gdn::DecodeProblem{}, second};
    return gdn::compile(context, problems).error().clone();
  };
  const Status invalid = refused(gdn::ConvProblem{.width = 5});
  CHECK(invalid.code() == Code::kInvalidArgument);
  CHECK(invalid.message() == "problems[1]: gdn_conv: width = 5; accepted: 2, 3, 4");
  const Status unsupported =
      refused(gdn::PrefillProblem{.key_dim = 256, .segments = gdn::Segments::kAlways});
  CHECK(unsupported.code() == Code::kUnsupported);
  CHECK(unsupported.message().starts_with("problems[1]: gdn_prefill: no path"));
}

}  // namespace
}  // namespace cubinery
