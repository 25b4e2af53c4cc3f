// All kernels of an operator at once, on a fake libcuda.
#include "runtime/jit/get_kernels.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cubinery/gdn.h"
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
  CHECK_FALSE(context.state().knows_nvrtc());
  CHECK(context.stats().misses == 0);
}

}  // namespace
}  // namespace cubinery
