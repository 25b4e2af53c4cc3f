#include "tests/gpu/decode_runs.h"

namespace cubinery::test {
namespace {

// The first power of two that runs another kernel than a batch of one; 64 when none does.
std::int64_t large_batch(const gdn::Decode& decode) {
  for (std::int64_t batch = 2; batch <= 4096; batch *= 2) {
    if (decode.kernel(batch).info().canonical != decode.kernel(1).info().canonical) return batch;
  }
  return 64;
}

}  // namespace

Results run(const DecodeCase& decode_case, const gdn::Decode& decode, const gdn::DecodeArgs& args) {
  const TestStream stream(gpu());
  decode_case.upload();
  const Status status = decode.launch(stream.get(), args);
  INFO(status.message());
  REQUIRE(status.ok());
  stream.synchronize();
  return decode_case.download();
}

Results run(const DecodeCase& decode_case, const gdn::Decode& decode) {
  return run(decode_case, decode, decode_case.args());
}

void run_case(const gdn::DecodeProblem& problem, std::int64_t batch, CaseOptions options) {
  options.seed += seed();
  const gdn::Decode decode = prepare(problem);
  const DecodeCase decode_case(gpu(), problem, batch, options);
  const Results results = run(decode_case, decode);
  expect_good(decode_case.check(results), decode_case.guards_intact(), options,
              "problem " + problem.to_json() + "\nkernel " + decode.kernel(batch).info().canonical +
                  "\nbatch " + std::to_string(batch));
}

void run_cases(const std::vector<gdn::DecodeProblem>& problems, std::int64_t batch,
               const CaseOptions& options) {
  prewarm(problems);
  for (const gdn::DecodeProblem& problem : problems) run_case(problem, batch, options);
}

void run_both_kernels(const std::vector<gdn::DecodeProblem>& problems, const CaseOptions& options) {
  prewarm(problems);
  for (const gdn::DecodeProblem& problem : problems) {
    run_case(problem, 3, options);
    run_case(problem, large_batch(prepare(problem)), options);
  }
}

gdn::DecodeProblem small_problem() {
  gdn::DecodeProblem problem;
  problem.q_heads = problem.k_heads = 2;
  problem.v_heads = 4;
  problem.key_dim = problem.value_dim = 64;
  return problem;
}

}  // namespace cubinery::test
