// Times launches on a device: graph replays, cold L2, medians with spread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cubinery/tuning.h"
#include "results/records.h"
#include "runtime/jit/device.h"

namespace cubinery {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();  // ms

// The seam between tuning and the clock, for tests without a GPU.
class Timer {
 public:
  virtual ~Timer() = default;
  // Milliseconds of one launch of a prepared configuration; `replays` samples, or one, where
  // launches take longer than `most_ms`.
  virtual Result<Timing> time(Workload& workload, std::size_t configuration, int replays,
                              double most_ms) = 0;
  // Several configurations, replays interleaved (a b c a b c ...) so that drifting clocks meet all
  // of them; in the order of `configurations`.
  virtual Result<std::vector<Timing>> run_off(Workload& workload,
                                              const std::vector<std::size_t>& configurations,
                                              int rounds) = 0;
  // While the last of these ran.
  virtual Clocks clocks() = 0;
  // kDriver: a kernel has left the device's context unusable (an illegal address, say); nothing
  // runs any more in this process.
  virtual Status usable() = 0;
  // The clock of budgets, and of how long everything took.
  virtual std::chrono::steady_clock::time_point now() const {
    return std::chrono::steady_clock::now();
  }
};

// The real one.  Errors as for gpu_identity().
Result<std::unique_ptr<Timer>> make_timer(const Context& context);

// Enqueues one launch on a stream, with the operands of a set.
using TimedLaunch = std::function<Status(Stream, int)>;

// Milliseconds of each of `launches`, their replays interleaved.  A CUDA graph for each holds
// several launches, going round the sets at least once and about 2 ms long, so that neither host
// time nor the graph's own start shows; every replay is timed by events.
//
// Launches that take longer than `most_ms` have one sample, of one round of the sets: the shorter
// of two, so that something else that disturbs one of them does not count.
Result<std::vector<Timing>> time_launches(const std::shared_ptr<const Device>& device, int sets,
                                          int replays, const std::vector<TimedLaunch>& launches,
                                          double most_ms = kNoLimit);

// Of any samples.  Requires: !samples.empty().
Timing summarise(std::vector<double> samples);

}  // namespace cubinery
