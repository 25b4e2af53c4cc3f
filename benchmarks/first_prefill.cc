#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/launch_check.h"
#include "benchmarks/subcommands.h"
#include "cubinery/gdn.h"
#include "harness/case.h"

namespace cubinery::bench {
namespace {

using nlohmann::ordered_json;

constexpr int kTokens = 256, kKeyHeads = 16, kHeads = 32, kDim = 128;

// steady_clock's zero is that of CLOCK_MONOTONIC, which all processes share.
std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

int start_anew(const std::string& cache) {
  const std::string started = std::to_string(now().count());
  execl("/proc/self/exe", "cubinery_bench", "first_prefill", "--cache", cache.c_str(), "--started",
        started.c_str(), static_cast<char*>(nullptr));
  throw std::runtime_error("cannot start the program anew");
}

// Seconds of each step, in order.
class Steps {
 public:
  explicit Steps(std::chrono::nanoseconds started) : started_(started), last_(started) {}
  // The step that ends here.
  void end(const char* name) {
    const auto end = now();
    seconds_[name] = significant(std::chrono::duration<double>(end - last_).count());
    last_ = end;
  }
  double total() const { return std::chrono::duration<double>(last_ - started_).count(); }
  const ordered_json& seconds() const { return seconds_; }

 private:
  std::chrono::nanoseconds started_, last_;
  ordered_json seconds_ = ordered_json::object();
};

gdn::PrefillProblem problem() {
  return {.heads = {.q = kKeyHeads, .k = kKeyHeads, .v = kHeads},
          .inputs = {.use_qk_l2norm = true},
          .states = {.has_initial = false}};
}

// Of all heads, against the recurrence in double.
Errors errors(const GdnCase& one, const GdnMemory& after) {
  const std::vector<GdnReference> references = one.references();
  Errors errors;
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const GdnReference& expected = references[idx(h)];
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const std::vector<float> o = one.row_values(after, TensorId::kO, 0, t, h, kDim);
      for (int d = 0; d < kDim; ++d) {
        errors.o.add(o[idx(d)], expected.o[idx(t * kDim + d)]);
      }
    }
    const auto state = one.matrix_values<double>(after, TensorId::kState, 0, h);
    for (std::size_t e = 0; e < state.size(); ++e) errors.state.add(state[e], expected.state[e]);
  }
  return errors;
}

}  // namespace

int run_first_prefill(int argc, char** argv) {
  const Arguments arguments(argc, argv, {}, {"--cache", "--started"});
  if (!arguments.has("--cache")) throw std::runtime_error("--cache is missing");
  if (!arguments.has("--started")) return start_anew(arguments.get("--cache"));
  Steps steps(std::chrono::nanoseconds(std::stoll(arguments.get("--started"))));
  steps.end("process");

  Options options = Options::from_env().value();
  options.cache_dir = arguments.get("--cache");
  options.cache_layers.clear();
  const auto gpu = open_gpu(options);
  steps.end("context");
  const gdn::Prefill prefill = gpu->context().prepare(problem()).value();
  steps.end("prepare");
  const GdnCase one(problem(), uniform(1, kTokens));
  const auto memory = GdnDeviceMemory::allocate(gpu->device(), one.memory()).value();
  memory.upload(one.memory()).value();
  const DeviceBuffer workspace(*gpu, prefill.workspace_bytes({.tokens = kTokens, .sequences = 1}));
  steps.end("operands");
  const DeviceStream stream = test::make_stream(*gpu);
  prefill
      .launch(stream.get(), one.args(memory.addresses()),
              {.data = workspace.data(), .bytes = workspace.bytes()})
      .value();
  stream.synchronize().value();
  memory.download(one.row_at(TensorId::kO, 0, 0, 0).piece).value();
  steps.end("first_call");

  const Errors error = errors(one, memory.download().value());
  const bool right = error.o.value() < kLargestError && error.state.value() < kLargestError;
  const ordered_json line = {{"gpu", gpu->name()},
                             {"seconds", significant(steps.total())},
                             {"of_which", steps.seconds()},
                             {"compiled", gpu->context().stats().compiles},
                             {"error_o", significant(error.o.value())},
                             {"error_state", significant(error.state.value())}};
  std::printf("%s\n", line.dump().c_str());
  if (!right) throw std::runtime_error("the first result is wrong");
  return 0;
}

}  // namespace cubinery::bench
