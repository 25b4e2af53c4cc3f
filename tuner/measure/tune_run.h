// One call of tune_with(), from shapes to results.
//
// What is done next follows from the journal alone, never from how it came about: a call that was
// interrupted and made again measures what is missing and comes to the same results.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/tuning.h"
#include "tuner/measure/candidates.h"
#include "tuner/measure/journal.h"
#include "tuner/measure/select.h"
#include "tuner/measure/timer.h"

namespace cubinery {

// Of a first look, of those that come close to the best, and of the run-off.
inline constexpr int kQuickReplays = 5;
inline constexpr int kFullReplays = 20;
inline constexpr int kRunOffRounds = 40;
inline constexpr int kMostContenders = 4;  // the best, the runner-up, the default, the agreed
// What comes close: within this share of the best, and no more than so many.
inline constexpr double kClose = 0.10;
inline constexpr std::size_t kMostClose = 8;
// What is slower than the best by more than this share is replayed once.
inline constexpr double kHopeless = 0.30;
// Differences below this share are noise.
inline constexpr double kWorth = 0.01;
// Differences below this share are not worth another configuration: its kernels have to be
// compiled, kept and loaded.
inline constexpr double kWorthAnother = 0.02;

// By how much two medians of a run-off must differ, as a share, to count: kWorth, or a quarter of
// the larger spread (p90 - p10), which is three times what the median of 40 rounds is uncertain by.
double noise(const Timing& a, const Timing& b);
// The time of a configuration; nullptr: it has none.
using TimeOf = std::function<const Timing*(std::size_t)>;
// Which of the finalists is taken, given their times in the run-off: the selection's best; the
// runner-up when it is faster by more than the noise and kWorthAnother; the default, unless the one
// so far is faster by more than the noise.
std::size_t decide(const Finalists& finalists, const TimeOf& time_of);
// Which one is taken where all shapes must agree in the fields that change bits: the one taken
// anyway if it does (`agrees`); else the agreed one; the default, if it agrees, unless that is
// faster by more than the noise.
std::size_t decide_agreed(const Finalists& finalists,
                          const std::function<bool(std::size_t)>& agrees, const TimeOf& time_of);

// How far the times of a configuration in another call may be from those of its run-off, `here`, as
// a share: noise(), or how far its earlier measurement, with other memory, is from it (nullptr:
// there is none, or it is too short).
double uncertainty(const Timing& here, const Timing* earlier);

using Milliseconds = std::chrono::duration<double, std::milli>;

class TuneRun {
 public:
  struct Machine {
    const Context& context;
    const GpuIdentity& gpu;
    const std::string& driver;
    Timer& timer;
  };
  // Everything outlives this.
  TuneRun(const Machine& machine, Tunable& tunable, const TuneSettings& settings);
  Result<TuneSummary> run(const std::vector<Shape>& shapes);

 private:
  // One shape on its way.
  struct ShapeRun {
    TunedShape tuned;
    Setting setting;
    std::string id;
    std::unique_ptr<Workload> workload{};  // while it is measured
    std::size_t to_measure = 0;            // configurations
    std::size_t done = 0, rejected = 0;
    std::vector<std::optional<double>> ms{};  // by configuration
    std::optional<std::size_t> best{};
    bool is_measured = false;             // all of it
    std::map<std::size_t, Timing> met{};  // in the run-off
  };

  // tune_run.cc
  Status open(const std::vector<Shape>& shapes);
  Result<ShapeRun> start(const Shape& shape) const;
  bool go_on();
  Milliseconds run_off_time(const ShapeRun& shape) const;
  bool goes_on(const ShapeRun& shape) const { return !stopped_ && shape.tuned.why.empty(); }
  void report(const ShapeRun& shape, std::string_view what) const;
  const Measurement* known(const ShapeRun& shape, std::size_t configuration) const;
  const std::string& templates_of(std::size_t configuration) const;
  Status failed(const Status& error);
  Status allocate(ShapeRun* shape);

  // measure_shape.cc
  Status measure(ShapeRun* shape);
  Status search(ShapeRun* shape);
  Status get_ready(ShapeRun* shape, const std::vector<std::size_t>& configurations);
  Status measure_one(ShapeRun* shape, std::size_t configuration);
  Status judge(ShapeRun* shape, std::size_t configuration, Measurement* measurement);
  Status check(std::size_t configuration, Measurement* measurement);
  Status prepare(std::size_t configuration, Measurement* measurement);
  Status time(ShapeRun* shape, std::size_t configuration, int replays, double most_ms,
              Measurement* measurement);
  std::optional<std::size_t> to_confirm(const ShapeRun& shape) const;
  Status confirm(ShapeRun* shape, std::size_t configuration);
  void count(ShapeRun* shape, std::size_t configuration) const;
  void take_over(ShapeRun* shape, std::size_t configuration) const;

  // run_off.cc
  Status finish();
  std::vector<std::string> other_settings() const;
  ShapeTimes times_of(const KnownSetting& known) const;
  std::set<std::size_t> used_elsewhere() const;
  Status run_off(ShapeRun* shape, const Finalists& finalists, const std::vector<TunedValue>& bits);
  Status meet(ShapeRun* shape, const std::vector<std::size_t>& contenders);
  bool is_settled(const TuningResult& result, const Finalists& finalists) const;
  bool agrees(std::size_t configuration, const std::vector<TunedValue>& bits) const;
  double uncertainty(const KnownSetting& known, const Finalists& finalists,
                     const TimeOf& time_of) const;
  Status write(const KnownSetting& known, const Finalists& finalists,
               const std::vector<TunedValue>& bits, const TimeOf& time_of);
  Status write_agreed(const KnownSetting& known, std::size_t configuration);
  void set_agreed(std::size_t configuration, const Timing& ms, TuningResult* result) const;
  void settle(ShapeRun* shape) const;

  Machine machine_;
  Tunable& tunable_;
  const TuneSettings& settings_;
  const TuningSpace& space_;
  std::chrono::steady_clock::time_point start_;
  Toolchain toolchain_;
  std::vector<std::string> texts_;  // of the configurations
  TuneCandidates candidates_;
  Journal journal_;
  std::vector<ShapeRun> shapes_;
  std::size_t shapes_done_ = 0;
  Milliseconds reserved_{0};  // for the run-offs
  bool stopped_ = false;
  TuneSummary summary_;
};

// Now, in UTC: "2026-11-21T21:00:00Z".
std::string utc_now();

}  // namespace cubinery
