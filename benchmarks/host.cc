#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/launches.h"
#include "benchmarks/prepared_launch.h"
#include "benchmarks/subcommands.h"
#include "harness/operators.h"
#include "tests/cache/temp_dir.h"

namespace cubinery::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// As engines run them: gates from bf16 logits, q and k normalised, states in a pool.
gdn::DecodeProblem decode_problem() {
  gdn::DecodeProblem problem;
  problem.inputs.gate_dtype = problem.inputs.beta_dtype = DType::kBF16;
  problem.inputs.gate_mode = gdn::GateMode::kComputed;
  problem.inputs.beta_mode = gdn::BetaMode::kLogit;
  problem.inputs.use_qk_l2norm = true;
  problem.states.location = gdn::StateLocation::kPool;
  return problem;
}

gdn::VerifyProblem verification() {
  gdn::VerifyProblem drafts{.inputs = decode_problem().inputs, .states = decode_problem().states};
  drafts.states.store = false;
  return drafts;
}

// Of the model that decode_problem() is of.
gdn::PrefillProblem prefill_problem() {
  const gdn::DecodeProblem decode = decode_problem();
  return {.heads = decode.heads, .inputs = decode.inputs, .states = decode.states, .varlen = true};
}

GdnOperands operands_of(const Gpu& gpu, const GdnProblem& reference, int tokens,
                        std::size_t workspace_bytes = 0) {
  return bench::operands_of(gpu, reference, {tokens}, RowData{}, workspace_bytes);
}

void put(Results* results, const std::string& name, double value, const char* unit) {
  results->put({{"op", "host"}, {"name", name}}, {{"value", significant(value)}, {"unit", unit}});
}

// Microseconds per call of `launches` calls in a row; the queue is empty before and after.
template <class Call>
double microseconds_per_call(const DeviceStream& stream, int launches, const Call& call) {
  stream.synchronize().value();
  const Clock::time_point start = Clock::now();
  bool ok = true;
  for (int i = 0; i < launches; ++i) ok = call() && ok;
  const double seconds = seconds_since(start);
  stream.synchronize().value();
  if (!ok) throw std::runtime_error("a launch failed");
  return seconds * 1e6 / launches;
}

// Of which a row is the median.
int rounds(bool quick) { return quick ? 10 : 201; }

// `prefix`: of the rows' names.  `launch` is the operator's, of `kernel`.
template <class Launch>
void launch_rows(const Gpu& gpu, bool quick, const std::string& prefix, const DeviceStream& stream,
                 const Launch& launch, const Kernel& kernel, Results* results) {
  const PreparedLaunch prepared(gpu, stream, launch, kernel);
  // Fewer than the driver's queue takes: a full queue makes the host wait for the device.
  const int launches = quick ? 100 : 500;
  std::vector<double> ours, bare;
  for (int i = 0; i < rounds(quick); ++i) {
    ours.push_back(microseconds_per_call(stream, launches, [&] { return launch().ok(); }));
    bare.push_back(microseconds_per_call(
        stream, launches, [&] { return prepared.launch(stream.get()) == CUDA_SUCCESS; }));
  }
  const double ours_us = summarise(ours).median;
  const double bare_us = summarise(bare).median;
  put(results, prefix + "launch_us", ours_us, "us");
  put(results, prefix + "bare_launch_us", bare_us, "us");
  put(results, prefix + "launch_over_bare", ours_us / bare_us, "ratio");
}

// A kernel from a text, with arguments of three sizes.
void text_launch_rows(const Gpu& gpu, bool quick, const DeviceStream& stream, Results* results) {
  const Kernel kernel = gpu.context()
                            .get({.name = "scale", .source = R"(
__global__ void scale(float* x, double by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
})"})
                            .value();
  const DeviceBuffer x(gpu, 1024 * sizeof(float));
  float* const data = static_cast<float*>(x.data());
  const auto launch = [&] {
    return kernel.launch(stream.get(), {.grid = {4}, .block = {256}}, data, 0.5, 1024);
  };
  launch_rows(gpu, quick, "text_", stream, launch, kernel, results);
}

// Of few tokens, and fewer launches: each has up to two kernels, and the device must not be what
// takes the time.
void prefill_launch_rows(const Gpu& gpu, bool quick, const DeviceStream& stream, Results* results) {
  constexpr int kTokens = 64;
  for (const gdn::Decay decay : {gdn::Decay::kHead, gdn::Decay::kChannel}) {
    gdn::PrefillProblem problem = prefill_problem();
    problem.inputs.decay = decay;
    const gdn::Prefill prefill = gpu.context().prepare(problem).value();
    const GdnOperands operands = operands_of(
        gpu, problem, kTokens, prefill.workspace_bytes({.tokens = kTokens, .sequences = 1}));
    const gdn::PrefillArgs args = operands.args(0);
    const gdn::Workspace workspace = operands.workspace(0);
    const auto launch = [&] { return prefill.launch(stream.get(), args, workspace).ok(); };
    std::vector<double> us(rounds(quick));
    for (double& each : us) each = microseconds_per_call(stream, quick ? 20 : 100, launch);
    const std::string prefix = decay == gdn::Decay::kChannel ? "kda_" : "";
    put(results, prefix + "prefill_launch_us", summarise(us).median, "us");
  }
}

void all_launch_rows(const Gpu& gpu, bool quick, Results* results) {
  const DeviceStream stream = test::make_stream(gpu);
  text_launch_rows(gpu, quick, stream, results);
  prefill_launch_rows(gpu, quick, stream, results);
  {
    const gdn::Decode decode = gpu.context().prepare(decode_problem()).value();
    const GdnOperands operands = operands_of(gpu, as_prefill(decode_problem()), 1);
    const gdn::DecodeArgs args = as_decode(operands.args(0));
    const auto launch = [&] { return decode.launch(stream.get(), args); };
    launch_rows(gpu, quick, "", stream, launch, decode.kernel(1), results);
  }
  {
    const gdn::VerifyProblem drafts = verification();
    const gdn::Verify verify = gpu.context().prepare(drafts).value();
    const GdnOperands operands = operands_of(gpu, as_prefill(drafts), 4);
    const gdn::VerifyArgs args = as_verify(drafts, operands.args(0));
    const auto launch = [&] { return verify.launch(stream.get(), args); };
    launch_rows(gpu, quick, "verify_", stream, launch, verify.kernel({.requests = 1, .tokens = 4}),
                results);
  }
  const gdn::CommitProblem accepted{.inputs = decode_problem().inputs};
  const gdn::Commit commit = gpu.context().prepare(accepted).value();
  const GdnOperands operands = operands_of(gpu, as_prefill(accepted), 4);
  const gdn::CommitArgs args = as_commit(operands.args(0));
  const auto launch = [&] { return commit.launch(stream.get(), args); };
  launch_rows(gpu, quick, "commit_", stream, launch, commit.kernel({.requests = 1}), results);
}

Options with_cache(const Gpu& gpu, const std::string& dir) {
  Options options = gpu.options();
  options.cache_dir = dir;
  options.cache_layers.clear();
  return options;
}

// `prefix`: of the rows' names.  The first get of a process opens more than later ones do: the
// context of `gpu` has been through that.
template <class Problem>
void prepare_rows(const Gpu& gpu, bool quick, const Problem& problem, const std::string& prefix,
                  Results* results) {
  std::vector<double> create_ms, cold_ms, disk_ms;
  for (int i = 0; i < (quick ? 2 : 9); ++i) {
    const test::TempDir dir;
    for (std::vector<double>* times : {&cold_ms, &disk_ms}) {
      Clock::time_point start = Clock::now();
      const Context context = Context::create(with_cache(gpu, dir.path())).value();
      create_ms.push_back(seconds_since(start) * 1e3);
      start = Clock::now();
      const auto prepared = context.prepare(problem).value();
      times->push_back(seconds_since(start) * 1e3);
      const bool compiled = context.stats().compiles != 0;
      if (compiled != (times == &cold_ms))
        throw std::runtime_error("the cache is not as it should be");
    }
  }
  put(results, "context_create_ms", summarise(create_ms).median, "ms");
  put(results, prefix + "_cold_ms", summarise(cold_ms).median, "ms");
  put(results, prefix + "_disk_ms", summarise(disk_ms).median, "ms");
}

// In the child process: one decode step with nothing prepared but the cache in `dir`.
int first_result(const std::string& dir, int signal_fd) {
  Options options = Options::from_env().value();
  options.cache_dir = dir;
  options.cache_layers.clear();
  const auto gpu = open_gpu(options);
  const gdn::Decode decode = gpu->context().prepare(decode_problem()).value();
  const std::size_t state_bytes = std::size_t{32} * 128 * 128 * 4;
  const DeviceBuffer state(*gpu, state_bytes), rows(*gpu, 1 << 16),
      o(*gpu, std::size_t{32} * 128 * 2);
  state.upload(std::vector<std::byte>(state_bytes));
  rows.upload(std::vector<std::byte>(rows.bytes()));
  gdn::DecodeArgs args;
  args.q = Tensor::contiguous(rows.data(), DType::kBF16, {1, 16, 128});
  args.k = args.q;
  args.v = Tensor::contiguous(rows.data(), DType::kBF16, {1, 32, 128});
  args.g = args.beta = Tensor::contiguous(rows.data(), DType::kBF16, {1, 32});
  args.A_log = args.dt_bias = Tensor::contiguous(rows.data(), DType::kF32, {32});
  args.o = Tensor::contiguous(o.data(), DType::kBF16, {1, 32, 128});
  args.state = Tensor::contiguous(state.data(), DType::kF32, {1, 32, 128, 128});
  args.state_indices = Tensor::contiguous(rows.data(), DType::kI32, {1});
  const DeviceStream stream = test::make_stream(*gpu);
  decode.launch(stream.get(), args).value();
  stream.synchronize().value();
  // All inputs are zero, so is the result; the buffer was NaN before.
  const bool right = o.download() == std::vector<std::byte>(o.bytes());
  const char byte = right ? 1 : 0;
  return write(signal_fd, &byte, 1) == 1 && right ? 0 : 1;
}

// Seconds from the start of a fresh process to its first result, which it reports through a pipe:
// its end does not count.
double fresh_process_s(const std::string& dir) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
  const std::string fd = std::to_string(ends[1]);
  const Clock::time_point start = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "cubinery_bench", "host", "--first-result", dir.c_str(), "--signal-fd",
          fd.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  char byte = 0;
  const bool reported = child > 0 && read(ends[0], &byte, 1) == 1 && byte == 1;
  const double seconds = seconds_since(start);
  close(ends[0]);
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
  if (!reported || status != 0) {
    throw std::runtime_error("the process that computes a first result failed");
  }
  return seconds;
}

void first_result_rows(bool quick, Results* results) {
  std::vector<double> cold, prewarmed;
  for (int i = 0; i < (quick ? 1 : 5); ++i) {
    const test::TempDir dir;
    cold.push_back(fresh_process_s(dir.path()));
    prewarmed.push_back(fresh_process_s(dir.path()));
  }
  put(results, "first_result_cold_s", summarise(cold).median, "s");
  put(results, "first_result_prewarmed_s", summarise(prewarmed).median, "s");
}

}  // namespace

int run_host(int argc, char** argv) {
  const Arguments arguments(argc, argv, {"--quick"},
                            {"--out", "--commit", "--first-result", "--signal-fd"});
  if (arguments.has("--first-result"))
    return first_result(arguments.get("--first-result"), std::stoi(arguments.get("--signal-fd")));
  const bool quick = arguments.has("--quick");
  const auto gpu = open_gpu(Options::from_env().value());
  Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  describe(*gpu, &results);
  all_launch_rows(*gpu, quick, &results);
  prepare_rows(*gpu, quick, prefill_problem(), "prepare_prefill", &results);
  prepare_rows(*gpu, quick, decode_problem(), "prepare", &results);
  first_result_rows(quick, &results);
  return 0;
}

}  // namespace cubinery::bench
