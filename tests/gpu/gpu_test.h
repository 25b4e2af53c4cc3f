// What GPU tests share: the device, the seed, and run_case().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "tests/catch.h"
#include "tests/gpu/device.h"
#include "tests/gpu/gdn_case.h"

namespace cubinery::test {

// The device that main() opened.
const Gpu& gpu();
void set_gpu(const Gpu* gpu);

// CUBINERY_TEST_SEED, or a fixed number.  Printed at the start and with every failure.
std::uint64_t seed();

// Counts the running test case as skipped, once; the caller returns.
void skip_test(const std::string& why);
int skipped_tests();

// The operator; fails the test case when there is none.
gdn::Decode prepare(const gdn::DecodeProblem& problem);

// Compiles the kernels of many problems in parallel, so that preparing them one by one is quick.
void prewarm(const std::vector<gdn::DecodeProblem>& problems);

// One launch on a fresh copy of the case's data.
Results run(const DecodeCase& decode_case, const gdn::Decode& decode, const gdn::DecodeArgs& args);
Results run(const DecodeCase& decode_case, const gdn::Decode& decode);

// Runs the operator on random data and checks results and surroundings; a failure prints all that
// is needed to run only this case.
void run_case(const gdn::DecodeProblem& problem, std::int64_t batch, CaseOptions options = {});
void run_cases(const std::vector<gdn::DecodeProblem>& problems, std::int64_t batch,
               const CaseOptions& options = {});

// Each problem with a small batch and with one that is large enough for the kernel of large
// batches.
void run_both_kernels(const std::vector<gdn::DecodeProblem>& problems,
                      const CaseOptions& options = {});

// A small problem to vary: 2 key heads, 4 value heads, 64 x 64.
gdn::DecodeProblem small_problem();

}  // namespace cubinery::test
