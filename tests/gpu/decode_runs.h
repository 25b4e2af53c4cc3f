// Runs of decode cases.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/gpu/decode_case.h"
#include "tests/gpu/gpu_test.h"

namespace cubinery::test {

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
