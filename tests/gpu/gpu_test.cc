#include "tests/gpu/gpu_test.h"

#include <cstdlib>
#include <set>

namespace cubinery::test {
namespace {

const Gpu* the_gpu = nullptr;
std::set<std::string> skipped;

std::string test_name() { return Catch::getResultCapture().getCurrentTestName(); }

// The first power of two that runs another kernel than a batch of one; 64 when none does.
std::int64_t large_batch(const gdn::Decode& decode) {
  for (std::int64_t batch = 2; batch <= 4096; batch *= 2) {
    if (decode.kernel(batch).info().canonical != decode.kernel(1).info().canonical) return batch;
  }
  return 64;
}

}  // namespace

const Gpu& gpu() { return *the_gpu; }

void set_gpu(const Gpu* gpu) { the_gpu = gpu; }

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("CUBINERY_TEST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : 20261121ull;
  }();
  return value;
}

void skip_test(const std::string& why) {
  WARN("skipped: " << why);
  skipped.insert(test_name());
}

int skipped_tests() { return static_cast<int>(skipped.size()); }

gdn::Decode prepare(const gdn::DecodeProblem& problem) {
  Result<gdn::Decode> decode = gpu().context().prepare(problem);
  INFO("problem " << problem.to_json());
  if (!decode) {
    FAIL(to_string(decode.error().code()) << ": " << decode.error().message() << "\n"
                                          << decode.error().log());
  }
  return *decode;
}

void prewarm(const std::vector<gdn::DecodeProblem>& problems) {
  std::vector<KernelSpec> specs;
  for (const gdn::DecodeProblem& problem : problems) {
    Result<std::vector<KernelSpec>> kernels = problem.kernels(gpu().context().arch());
    if (!kernels) continue;  // prepare() reports it
    specs.insert(specs.end(), kernels->begin(), kernels->end());
  }
  parallel_for(static_cast<std::int64_t>(specs.size()), [&](std::int64_t i) {
    (void)gpu().context().compile(specs[static_cast<std::size_t>(i)]);  // prepare() reports errors
  });
}

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
  const Verdict verdict = decode_case.check(results);
  INFO("problem " << problem.to_json() << "\nkernel " << decode.kernel(batch).info().canonical
                  << "\nbatch " << batch << ", seed " << options.seed << ", gates "
                  << static_cast<int>(options.gates) << ", placement "
                  << static_cast<int>(options.placement) << "\nagain: CUBINERY_TEST_SEED=" << seed()
                  << " <this program> '" << test_name() << "'\n"
                  << verdict.o.text("o") << "\n"
                  << verdict.state.text("state"));
  CHECK(verdict.o.ok());
  CHECK(verdict.state.ok());
  CHECK(verdict.fault == "");
  CHECK(decode_case.guards_intact());
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
