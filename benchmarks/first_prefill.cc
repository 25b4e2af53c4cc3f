// The time from the start of a process to its first prefill, with the result on the host, and where
// it went.  Prints one JSON object; first_request.py runs this next to others.
//
//   first_prefill --cache FOLDER [--started NANOSECONDS]
//
// FOLDER is the kernel cache, empty or filled by an earlier run.  --started: when the process was
// started, in nanoseconds of CLOCK_MONOTONIC.  Without it the program starts itself anew.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/operands.h"
#include "cubinery/gdn.h"
#include "templates/gdn_prefill_scan/gdn_prefill_ref.h"
#include "tuner/gdn/random.h"
#include "tuner/gdn/rounding.h"

namespace {

using cubinery::DType;
using cubinery::Tensor;
using nlohmann::ordered_json;
namespace bench = cubinery::bench;
namespace gdn = cubinery::gdn;
namespace test = cubinery::test;

constexpr int kTokens = 256, kKeyHeads = 16, kHeads = 32, kDim = 128;
constexpr std::size_t kKeyCount = std::size_t{kTokens} * kKeyHeads * kDim;
constexpr std::size_t kValueCount = std::size_t{kTokens} * kHeads * kDim;
constexpr std::size_t kStateCount = std::size_t{kDim} * kDim;  // of a head
constexpr double kLargestError = 0.05;                         // as in prefill_bench
constexpr std::array kCheckedHeads{0, kHeads - 1};

// steady_clock's zero is that of CLOCK_MONOTONIC, which all processes share.
std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

int start_anew(const std::string& cache) {
  const std::string started = std::to_string(now().count());
  execl("/proc/self/exe", "first_prefill", "--cache", cache.c_str(), "--started", started.c_str(),
        static_cast<char*>(nullptr));
  throw std::runtime_error("cannot start the program anew");
}

// Seconds of each step, in order.
class Steps {
 public:
  explicit Steps(std::chrono::nanoseconds started) : started_(started), last_(started) {}
  // The step that ends here.
  void end(const char* name) {
    const auto end = now();
    seconds_[name] = bench::significant(std::chrono::duration<double>(end - last_).count());
    last_ = end;
  }
  double total() const { return std::chrono::duration<double>(last_ - started_).count(); }
  const ordered_json& seconds() const { return seconds_; }

 private:
  std::chrono::nanoseconds started_, last_;
  ordered_json seconds_ = ordered_json::object();
};

gdn::PrefillProblem problem() {
  return {.q_heads = kKeyHeads,
          .k_heads = kKeyHeads,
          .v_heads = kHeads,
          .use_qk_l2norm = true,
          .has_initial_state = false};
}

// One sequence on the host.
struct Operands {
  std::vector<std::byte> q = bench::normal_bytes(DType::kBF16, kKeyCount, 1);
  std::vector<std::byte> k = bench::normal_bytes(DType::kBF16, kKeyCount, 2);
  std::vector<std::byte> v = bench::normal_bytes(DType::kBF16, kValueCount, 3);
  std::vector<float> g, beta;  // [kTokens][kHeads]

  Operands() {
    cubinery::Random random(1, 4);
    for (int i = 0; i < kTokens * kHeads; ++i) {
      g.push_back(static_cast<float>(random.uniform(-0.1, 0)));
      beta.push_back(static_cast<float>(random.uniform()));
    }
  }
};

class Device {
 public:
  Device(const bench::Gpu& gpu, const gdn::Prefill& prefill, const Operands& host)
      : gpu_(gpu),
        q_(bench::upload(gpu, host.q)),
        k_(bench::upload(gpu, host.k)),
        v_(bench::upload(gpu, host.v)),
        g_(bench::upload(gpu, bench::bytes_of(host.g))),
        beta_(bench::upload(gpu, bench::bytes_of(host.beta))),
        o_(gpu, host.v.size()),
        state_(gpu, sizeof(float) * kHeads * kStateCount),
        workspace_(gpu, prefill.workspace_bytes({.tokens = kTokens, .sequences = 1})) {}

  // Launches and waits.
  void run(const gdn::Prefill& prefill) const {
    const auto rows = [](const bench::DeviceBuffer& buffer, std::int64_t heads) {
      return Tensor::contiguous(buffer.data(), DType::kBF16, {1, kTokens, heads, kDim});
    };
    const auto gates = [](const bench::DeviceBuffer& buffer) {
      return Tensor::contiguous(buffer.data(), DType::kF32, {1, kTokens, kHeads});
    };
    gdn::PrefillArgs args{.q = rows(q_, kKeyHeads),
                          .k = rows(k_, kKeyHeads),
                          .v = rows(v_, kHeads),
                          .g = gates(g_),
                          .beta = gates(beta_)};
    args.o = rows(o_, kHeads);
    args.state = Tensor::contiguous(state_.data(), DType::kF32, {1, kHeads, kDim, kDim});
    const test::TestStream stream(gpu_);
    prefill.launch(stream.get(), args, {.data = workspace_.data(), .bytes = workspace_.bytes()})
        .value();
    stream.synchronize();
  }

  std::vector<std::byte> o() const { return o_.download(); }
  // [value][key] of a head.
  std::vector<double> state(int head) const {
    constexpr auto kCount = static_cast<std::int64_t>(kStateCount);
    return bench::values(DType::kF32, state_, head * kCount, kCount);
  }

 private:
  const bench::Gpu& gpu_;
  bench::DeviceBuffer q_, k_, v_, g_, beta_, o_, state_, workspace_;
};

// Rows of one head out of [kTokens][heads][width].
std::vector<double> head_rows(const std::vector<double>& all, int heads, int head, int width) {
  std::vector<double> rows;
  for (int t = 0; t < kTokens; ++t) {
    const auto first = all.begin() + std::ptrdiff_t{t * heads + head} * width;
    rows.insert(rows.end(), first, first + width);
  }
  return rows;
}

// Of the checked heads, against the recurrence in double.
bench::Errors errors(const Operands& host, const std::vector<std::byte>& o, const Device& device) {
  const auto bf16 = [](const std::vector<std::byte>& bytes) {
    return cubinery::from_bytes(DType::kBF16, bytes);
  };
  const auto wide = [](const std::vector<float>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  const std::vector<double> all_o = bf16(o);
  bench::Errors errors;
  for (const int head : kCheckedHeads) {
    const int key_head = head / (kHeads / kKeyHeads);
    const gdn::PrefillRefHead<double> reference{
        .key_dim = kDim,
        .value_dim = kDim,
        .gate_mode = gdn::GateMode::kLog,
        .beta_mode = gdn::BetaMode::kGiven,
        .use_qk_l2norm = true,
        .scale = 1 / std::sqrt(double{kDim}),
        .q = head_rows(bf16(host.q), kKeyHeads, key_head, kDim),
        .k = head_rows(bf16(host.k), kKeyHeads, key_head, kDim),
        .v = head_rows(bf16(host.v), kHeads, head, kDim),
        .gate = head_rows(wide(host.g), kHeads, head, 1),
        .beta = head_rows(wide(host.beta), kHeads, head, 1)};
    std::vector<double> expected_o(kValueCount / kHeads), state(kStateCount);
    gdn::gdn_prefill_ref(reference, state.data(), expected_o.data());
    const std::vector<double> actual_o = head_rows(all_o, kHeads, head, kDim);
    const std::vector<double> actual_state = device.state(head);
    for (std::size_t i = 0; i < actual_o.size(); ++i) errors.o.add(actual_o[i], expected_o[i]);
    for (std::size_t key = 0; key < kDim; ++key) {
      for (std::size_t value = 0; value < kDim; ++value) {
        errors.state.add(actual_state[value * kDim + key], state[key * kDim + value]);
      }
    }
  }
  return errors;
}

int run(int argc, char** argv) {
  const bench::Arguments arguments(argc, argv, {}, {"--cache", "--started"});
  if (!arguments.has("--cache")) throw std::runtime_error("--cache is missing");
  if (!arguments.has("--started")) return start_anew(arguments.get("--cache"));
  Steps steps(std::chrono::nanoseconds(std::stoll(arguments.get("--started"))));
  steps.end("process");

  cubinery::Options options = cubinery::Options::from_env().value();
  options.cache_dir = arguments.get("--cache");
  options.cache_layers.clear();
  const auto gpu = bench::open_gpu(options);
  steps.end("context");
  const gdn::Prefill prefill = gpu->context().prepare(problem()).value();
  steps.end("prepare");
  const Operands host;
  const Device device(*gpu, prefill, host);
  steps.end("operands");
  device.run(prefill);
  const std::vector<std::byte> o = device.o();
  steps.end("first_call");

  const bench::Errors error = errors(host, o, device);
  const bool right = error.o.value() < kLargestError && error.state.value() < kLargestError;
  const ordered_json line = {{"gpu", gpu->name()},
                             {"seconds", bench::significant(steps.total())},
                             {"of_which", steps.seconds()},
                             {"compiled", gpu->context().stats().compiles},
                             {"error_o", bench::significant(error.o.value())},
                             {"error_state", bench::significant(error.state.value())}};
  std::printf("%s\n", line.dump().c_str());
  if (!right) throw std::runtime_error("the first result is wrong");
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
