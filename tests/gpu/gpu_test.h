// What GPU tests share: the device, the seed and operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "harness/case.h"
#include "tests/catch.h"
#include "tests/gpu/device.h"

namespace cubinery::test {

// The device that main() opened.
const Gpu& gpu();
void set_gpu(const Gpu* gpu);

// CUBINERY_TEST_SEED, or a fixed number.  Printed at the start and with every failure.
std::uint64_t seed();

std::string test_name();

// Counts the running test case as skipped, once; the caller returns.
void skip_test(const std::string& why);
int skipped_tests();

// Calls run(0) ... run(threads - 1), each `times` times and all from threads of their own, which
// have no current CUDA context.  Returns how often each gave false, once the device is idle.
std::vector<int> failures_in_threads(int threads, int times,
                                     const std::function<bool(std::size_t)>& run);

// Fails the running test case.
[[noreturn]] void fail_to_prepare(const std::string& problem, const Status& error);

// The operator, with its kernels for all sizes; fails the test case when there is none.
template <class Problem>
typename Problem::Operator prepare(const Problem& problem) {
  Result<typename Problem::Operator> prepared = gpu().context().prepare(problem);
  if (!prepared) fail_to_prepare(problem.to_json(), prepared.error());
  return *prepared;
}

}  // namespace cubinery::test
