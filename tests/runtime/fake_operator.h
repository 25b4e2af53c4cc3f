// Operators on the fake libcuda: what reaches their kernels can be looked at.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cubinery/context.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"
#include "tests/function_ref.h"
#include "tests/runtime/cached_kernel.h"

namespace cubinery::test {

// An address that nobody follows.
inline void* address(int n) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(n) << 20);
}

// A context on the fake device, with a cache in `dir`.  `paths`: Options::paths.
inline Context fake_context(const TempDir& dir, std::vector<std::string> paths = {}) {
  Options options;
  options.offline = true;
  options.driver_path = CUBINERY_FAKE_DRIVER;
  options.cache_dir = dir.path();
  options.paths = std::move(paths);
  return Context::create(options).value();
}

// The operator of `problem`, whose kernels are put into the cache.
template <class Problem>
typename Problem::Operator fake_operator(const FakeDriver& fake, const TempDir& dir,
                                         const Problem& problem,
                                         std::vector<std::string> paths = {}) {
  const Context context = fake_context(dir, paths);
  const std::vector<KernelSpec> specs = problem.kernels(context.arch(), paths).value();
  for (const KernelSpec& spec : specs) {
    fake->param_bytes[spec.kernel] = spec.param_bytes;
    REQUIRE_FALSE(store_trivial(context, spec, dir.path()).empty());
  }
  return context.prepare(problem).value();
}

template <class Params>
Params params_of(const FakeLaunch& launch) {
  Params params{};
  REQUIRE(launch.arguments.size() == sizeof params);
  std::memcpy(&params, launch.arguments.data(), sizeof params);
  return params;
}

// The message of a launch that is refused before anything reaches the driver.
inline std::string refused(const FakeDriver& fake, FunctionRef<Status()> launch) {
  const std::size_t before = fake->launches.size();
  const Status status = launch();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(fake->launches.size() == before);
  return std::string(status.message());
}

}  // namespace cubinery::test
