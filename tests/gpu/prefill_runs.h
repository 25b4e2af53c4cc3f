// Runs of prefill cases.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/gpu/gpu_test.h"
#include "tests/gpu/prefill_case.h"

namespace cubinery::test {

// Lengths around every boundary of a chunk or of a tile of it.
inline const std::vector<std::int64_t> kBoundaryLengths{
    0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257};

// A workspace of exactly the size that the launch asks for, all NaN.
DeviceBuffer make_workspace(const PrefillCase& prefill_case, const gdn::Prefill& prefill,
                            const gdn::PrefillArgs& args);
gdn::Workspace workspace_of(const DeviceBuffer& buffer);

// One launch on a fresh copy of the case's data.  Fails the test case when the guard bands of the
// workspace are damaged.
Results run(const PrefillCase& prefill_case, const gdn::Prefill& prefill,
            const gdn::PrefillArgs& args);
Results run(const PrefillCase& prefill_case, const gdn::Prefill& prefill);

// Runs the operator on random data and checks results and surroundings; a failure prints all that
// is needed to run only this case.
void run_case(const gdn::PrefillProblem& problem, const PrefillShape& shape,
              CaseOptions options = {});
void run_cases(const std::vector<gdn::PrefillProblem>& problems, const PrefillShape& shape,
               const CaseOptions& options = {});
// Runs the case and checks it; `options` are those it was made with.
void expect_good(const PrefillCase& prefill_case, const gdn::Prefill& prefill,
                 const PrefillShape& shape, const CaseOptions& options);

// A small problem to vary: 2 key heads, 4 value heads, 64 x 64; dense and varlen.
gdn::PrefillProblem small_prefill();
gdn::PrefillProblem small_varlen();

}  // namespace cubinery::test
