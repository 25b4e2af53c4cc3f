#include "tests/gpu/prefill_runs.h"

namespace cubinery::test {

DeviceBuffer make_workspace(const PrefillCase& prefill_case, const gdn::Prefill& prefill,
                            const gdn::PrefillArgs& args) {
  return DeviceBuffer(gpu(), prefill.workspace_bytes(prefill_case.size(args)));
}

gdn::Workspace workspace_of(const DeviceBuffer& buffer) {
  return {.data = buffer.data(), .bytes = buffer.bytes()};
}

Results run(const PrefillCase& prefill_case, const gdn::Prefill& prefill,
            const gdn::PrefillArgs& args) {
  const TestStream stream(gpu());
  prefill_case.upload();
  const DeviceBuffer workspace = make_workspace(prefill_case, prefill, args);
  const Status status = prefill.launch(stream.get(), args, workspace_of(workspace));
  INFO(status.message() << "; problem " << prefill_case.problem().to_json());
  REQUIRE(status.ok());
  stream.synchronize();
  CHECK(workspace.guards_intact());
  return prefill_case.download();
}

Results run(const PrefillCase& prefill_case, const gdn::Prefill& prefill) {
  return run(prefill_case, prefill, prefill_case.args());
}

void expect_good(const PrefillCase& prefill_case, const gdn::Prefill& prefill,
                 const PrefillShape& shape, const CaseOptions& options) {
  const Results results = run(prefill_case, prefill);
  expect_good(prefill_case.check(results), prefill_case.guards_intact(), options,
              "problem " + prefill_case.problem().to_json() + "\n" + shape.text());
}

void run_case(const gdn::PrefillProblem& problem, const PrefillShape& shape, CaseOptions options) {
  options.seed += seed();
  const gdn::Prefill prefill = prepare(problem);
  const PrefillCase prefill_case(gpu(), problem, shape, options);
  expect_good(prefill_case, prefill, shape, options);
}

void run_cases(const std::vector<gdn::PrefillProblem>& problems, const PrefillShape& shape,
               const CaseOptions& options) {
  prewarm(problems);
  for (const gdn::PrefillProblem& problem : problems) run_case(problem, shape, options);
}

gdn::PrefillProblem small_prefill() {
  gdn::PrefillProblem problem;
  problem.q_heads = problem.k_heads = 2;
  problem.v_heads = 4;
  problem.key_dim = problem.value_dim = 64;
  return problem;
}

gdn::PrefillProblem small_varlen() {
  gdn::PrefillProblem problem = small_prefill();
  problem.varlen = true;
  return problem;
}

}  // namespace cubinery::test
