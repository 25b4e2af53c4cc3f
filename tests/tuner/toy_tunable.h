// Tuning without a GPU: a kernel that NVRTC compiles, operands that do not exist, a clock that
// knows what everything costs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cubinery/tuning.h"
#include "tests/runtime/twice_template.h"
#include "tuner/measure/timer.h"

namespace cubinery::test {

inline constexpr std::string_view kToyKey = R"(#pragma once
struct ToyKey {
  int threads = 32;
  int order = 1;
  int bulk = 0;
  int shared = 0;
};
struct ToyParams {
  float* x;
  long long n;
};
)";

// `bulk` values are all live at once: with 1024 threads, more than some 60 spill.
inline constexpr std::string_view kToyKernel = R"(#include "toy/key.h"
constexpr ToyKey kKey = CUBINERY_KEY;
static_assert(kKey.threads % 32 == 0, "toy: whole warps only");
extern "C" __global__ void __launch_bounds__(kKey.threads)
    toy(const __grid_constant__ ToyParams p) {
  const int lane = threadIdx.x;
  float x[kKey.bulk + 1];
#pragma unroll
  for (int i = 0; i <= kKey.bulk; ++i) x[i] = p.x[i * p.n + lane];
#pragma unroll
  for (int i = 0; i <= kKey.bulk; ++i) p.x[i * p.n + lane + 1] = x[i] * x[kKey.bulk - i] * kKey.order;
}
)";

struct ToyKey {
  int threads = 32;
  int order = 1;  // changes bits
  int bulk = 0;
  int shared = 0;
};

inline Configuration toy(const ToyKey& key) {
  const auto text = [](int value) { return std::to_string(value); };
  const std::string list = "threads=" + text(key.threads) + ",.order=" + text(key.order) +
                           ",.bulk=" + text(key.bulk) + ",.shared=" + text(key.shared);
  return {{{"threads", text(key.threads)},
           {"order", text(key.order), false, true},
           {"bulk", text(key.bulk)},
           {"shared", text(key.shared)}},
          {{.kernel = "toy",
            .canonical = "toy;" + list,
            .initializer = "{." + list + "}",
            .threads = static_cast<unsigned>(key.threads),
            .shared_bytes = static_cast<unsigned>(key.shared),
            .param_bytes = 16}}};
}

// 32, 64, 128 and 256 threads, each in order 1, then in order 2.
inline TuningSpace toy_space() {
  TuningSpace space{.op = "toy", .problem = "dtype=f32", .configurations = {}};
  for (const int order : {1, 2}) {
    for (const int threads : {32, 64, 128, 256}) {
      space.configurations.push_back(toy({.threads = threads, .order = order}));
    }
  }
  return space;
}

struct ToyWorkload : Workload {
  explicit ToyWorkload(std::int64_t rows) : rows(rows) {}
  int sets() const override { return 3; }
  Status launch(std::size_t, Stream, int) override { return {}; }
  std::int64_t bytes() const override { return 8 * rows; }
  std::int64_t rows;
};

// Shapes have the size rows.
struct ToyTunable : Tunable {
  const TuningSpace& space() const override { return of; }
  std::size_t default_configuration(const Shape&) const override { return otherwise; }
  Status prepare(std::size_t configuration) override {
    ++prepared[configuration];
    if (unprepared.contains(configuration)) return Status(Code::kDriver, "the driver refuses it");
    return {};
  }
  Result<Check> check(std::size_t configuration) override {
    ++checked[configuration];
    const double error = wrong.contains(configuration) ? 2.0 : 0.5;
    return Check{.error = error, .limit = 1, .worst = "y, everywhere"};
  }
  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override {
    const std::int64_t rows = shape.front().value;
    if (refused.contains(rows)) return Status(Code::kInvalidArgument, "rows are refused");
    if (too_large.contains(rows)) return Status(Code::kDriver, "out of memory");
    return std::unique_ptr<Workload>(std::make_unique<ToyWorkload>(rows));
  }

  TuningSpace of = toy_space();
  std::size_t otherwise = 0;
  std::set<std::size_t> wrong{}, unprepared{};
  std::set<std::int64_t> refused{}, too_large{};
  std::map<std::size_t, int> prepared{}, checked{};
};

// Medians are off by up to `noise`, always alike for the same seed, shape, configuration and number
// of replays.
class ToyTimer : public Timer {
 public:
  using Cost = std::function<double(std::int64_t rows, std::size_t configuration)>;
  explicit ToyTimer(Cost cost) : cost_(std::move(cost)) {}

  Result<Timing> time(Workload& workload, std::size_t configuration, int replays,
                      double most_ms) override {
    if (deadly.contains(configuration)) {
      dead = true;
      return Status(Code::kDriver, "cuEventSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS");
    }
    if (failing.contains(configuration)) return Status(Code::kDriver, "cuGraphLaunch: refused");
    Timing timing = sample(workload, configuration, replays);
    if (timing.median > most_ms) timing.samples = 1;
    return timing;
  }
  Result<std::vector<Timing>> run_off(Workload& workload,
                                      const std::vector<std::size_t>& configurations,
                                      int rounds) override {
    std::vector<Timing> timings;
    for (const std::size_t configuration : configurations) {
      timings.push_back(sample(workload, configuration, rounds));
    }
    return timings;
  }
  Clocks clocks() override { return {.sm_mhz = 1980, .memory_mhz = 3201}; }
  std::chrono::steady_clock::time_point now() const override { return clock; }
  Status usable() override {
    return dead ? Status(Code::kDriver, "CUDA_ERROR_ILLEGAL_ADDRESS") : Status();
  }

  double noise = 0;
  std::uint64_t seed = 1;
  std::set<std::size_t> failing{}, deadly{};
  bool dead = false;
  std::chrono::steady_clock::time_point clock{};  // stands still, unless a test lets it go on
  // How often a shape's configuration was timed with so many replays.
  std::map<std::tuple<std::int64_t, std::size_t, int>, int> calls{};

 private:
  Timing sample(Workload& workload, std::size_t configuration, int replays) {
    const std::int64_t rows = static_cast<ToyWorkload&>(workload).rows;
    ++calls[{rows, configuration, replays}];
    std::uint64_t bits = seed * 1000003 + static_cast<std::uint64_t>(rows) * 8191 +
                         configuration * 131 + static_cast<std::uint64_t>(replays);
    for (int i = 0; i < 4; ++i) {
      bits = (bits ^ (bits >> 31)) * 0x9E3779B97F4A7C15ull;
    }
    const double share = static_cast<double>(bits >> 11) / static_cast<double>(1ull << 53);
    const double ms = cost_(rows, configuration) * (1 + noise * (2 * share - 1));
    return {ms, ms * (1 - noise), ms * (1 + noise), replays};
  }

  Cost cost_;
};

inline GpuIdentity toy_gpu() {
  return {.arch = "sm_90a",
          .capability = "9.0",
          .sm_count = 132,
          .l2_bytes = 60 << 20,
          .shared_bytes_per_sm = 233472,
          .mig = "",
          .name = "Toy"};
}

}  // namespace cubinery::test
