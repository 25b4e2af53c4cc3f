#include "tuner/measure/timer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tuner/measure/clocks.h"
#include "tuner/measure/device_memory.h"

namespace cubinery {
namespace {

constexpr double kGraphMs = 2;      // long enough to hide the start of a graph
constexpr int kMaxLaunches = 1024;  // per graph

// A stream between two events.
struct Stopwatch {
  DeviceStream stream;
  DeviceEvent start, end;

  static Result<Stopwatch> create(const std::shared_ptr<const Device>& device) {
    Result<DeviceStream> stream = DeviceStream::create(device);
    if (!stream) return std::move(stream).error();
    Result<DeviceEvent> start = DeviceEvent::create(device);
    if (!start) return std::move(start).error();
    Result<DeviceEvent> end = DeviceEvent::create(device);
    if (!end) return std::move(end).error();
    return Stopwatch{std::move(*stream), std::move(*start), std::move(*end)};
  }

  Result<double> time(const DeviceGraph& graph) const {
    CUBINERY_RETURN_IF_ERROR(start.record(stream));
    CUBINERY_RETURN_IF_ERROR(graph.launch(stream));
    CUBINERY_RETURN_IF_ERROR(end.record(stream));
    return end.since(start);
  }
};

// Launches in a graph, warmed up.
struct Replay {
  DeviceGraph graph;
  int launches = 0;
  bool is_over = false;  // no more samples
  std::vector<double> samples{};

  static Result<Replay> make(const Stopwatch& watch, int sets, const TimedLaunch& launch,
                             double most_ms) {
    const auto round = [&] {
      for (int set = 0; set < sets; ++set) {
        CUBINERY_RETURN_IF_ERROR(launch(watch.stream.get(), set));
      }
      return Status();
    };
    Result<DeviceGraph> one_round = DeviceGraph::capture(watch.stream, round);
    if (!one_round) return std::move(one_round).error();
    CUBINERY_RETURN_IF_ERROR(one_round->launch(watch.stream));  // warm-up
    Result<double> round_ms = watch.time(*one_round);
    if (!round_ms) return std::move(round_ms).error();
    if (*round_ms > most_ms * sets) {
      const Result<double> again_ms = watch.time(*one_round);
      if (!again_ms) return again_ms.error().clone();
      round_ms = std::min(*round_ms, *again_ms);
      if (*round_ms > most_ms * sets) {
        return Replay{std::move(*one_round), sets, /*is_over=*/true, {*round_ms / sets}};
      }
    }
    const int wanted = static_cast<int>(std::ceil(kGraphMs / std::max(*round_ms, 1e-3)));
    const int rounds = std::clamp(wanted, 1, std::max(1, kMaxLaunches / sets));
    Result<DeviceGraph> graph = DeviceGraph::capture(watch.stream, [&] {
      for (int i = 0; i < rounds; ++i) CUBINERY_RETURN_IF_ERROR(round());
      return Status();
    });
    if (!graph) return std::move(graph).error();
    for (int i = 0; i < 2; ++i) CUBINERY_RETURN_IF_ERROR(graph->launch(watch.stream));
    return Replay{.graph = std::move(*graph), .launches = rounds * sets};
  }

  Status sample(const Stopwatch& watch) {
    if (is_over) return {};
    const Result<double> ms = watch.time(graph);
    if (!ms) return ms.error().clone();
    samples.push_back(*ms / launches);
    return {};
  }
};

class DeviceTimer : public Timer {
 public:
  explicit DeviceTimer(std::shared_ptr<const Device> device)
      : device_(std::move(device)), clocks_(*device_) {}

  Result<Timing> time(Workload& workload, std::size_t configuration, int replays,
                      double most_ms) override {
    Result<std::vector<Timing>> timings = time_launches(
        device_, workload.sets(), replays, {launch_of(workload, configuration)}, most_ms);
    if (!timings) return std::move(timings).error();
    return timings->front();
  }

  Result<std::vector<Timing>> run_off(Workload& workload,
                                      const std::vector<std::size_t>& configurations,
                                      int rounds) override {
    std::vector<TimedLaunch> launches;
    launches.reserve(configurations.size());
    for (const std::size_t configuration : configurations) {
      launches.push_back(launch_of(workload, configuration));
    }
    return time_launches(device_, workload.sets(), rounds, launches);
  }

  // GPUs keep their clocks for a while after the last kernel.
  Clocks clocks() override { return clocks_.read(); }

  Status usable() override {
    const Driver& driver = device_->driver();
    const CurrentContext current(driver, device_->context());
    CUBINERY_RETURN_IF_ERROR(current.status().clone());
    return driver.check(driver.cuCtxSynchronize(), "cuCtxSynchronize");
  }

 private:
  static TimedLaunch launch_of(Workload& workload, std::size_t configuration) {
    return [&workload, configuration](Stream stream, int set) {
      return workload.launch(configuration, stream, set);
    };
  }

  std::shared_ptr<const Device> device_;
  ClockReader clocks_;
};

}  // namespace

Timing summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    const double index = share * static_cast<double>(samples.size() - 1);
    return samples[static_cast<std::size_t>(std::lround(index))];
  };
  return {at(0.5), at(0.1), at(0.9), static_cast<int>(samples.size())};
}

Result<std::vector<Timing>> time_launches(const std::shared_ptr<const Device>& device, int sets,
                                          int replays, const std::vector<TimedLaunch>& launches,
                                          double most_ms) {
  const Result<Stopwatch> watch = Stopwatch::create(device);
  if (!watch) return watch.error().clone();
  std::vector<Replay> all;
  for (const TimedLaunch& launch : launches) {
    Result<Replay> replay = Replay::make(*watch, sets, launch, most_ms);
    if (!replay) return std::move(replay).error();
    all.push_back(std::move(*replay));
  }
  for (int i = 0; i < std::max(1, replays); ++i) {
    for (Replay& replay : all) CUBINERY_RETURN_IF_ERROR(replay.sample(*watch));
  }
  std::vector<Timing> timings;
  timings.reserve(all.size());
  for (Replay& replay : all) timings.push_back(summarise(std::move(replay.samples)));
  return timings;
}

Result<std::unique_ptr<Timer>> make_timer(const Context& context) {
  Result<std::shared_ptr<const Device>> device = device_of(context);
  if (!device) return std::move(device).error();
  return std::unique_ptr<Timer>(std::make_unique<DeviceTimer>(*std::move(device)));
}

}  // namespace cubinery
