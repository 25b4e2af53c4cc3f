#include "tuner/measure/tune_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "results/shape.h"
#include "runtime/operator/tuning_context.h"

namespace cubinery {

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

TuneRun::TuneRun(const Machine& machine, Tunable& tunable, const TuneSettings& settings)
    : machine_(machine),
      tunable_(tunable),
      settings_(settings),
      space_(tunable.space()),
      start_(machine.timer.now()),
      candidates_(machine.context, space_, machine.gpu) {
  for (const Configuration& configuration : space_.configurations) {
    texts_.push_back(to_text(configuration.values));
  }
}

Result<TuneSummary> TuneRun::run(const std::vector<Shape>& shapes) {
  CUBINERY_RETURN_IF_ERROR(open(shapes));
  for (ShapeRun& shape : shapes_) {
    CUBINERY_RETURN_IF_ERROR(measure(&shape));
    // The next one, and the run-offs, need the memory.
    shape.workload.reset();
    if (stopped_) break;
    ++shapes_done_;
    reserved_ += run_off_time(shape);
  }
  CUBINERY_RETURN_IF_ERROR(finish());
  for (ShapeRun& shape : shapes_) {
    if (!shape.tuned.complete && shape.tuned.why.empty()) shape.tuned.why = "stopped";
    summary_.rejected += shape.rejected;
    summary_.shapes.push_back(std::move(shape.tuned));
  }
  summary_.stopped = stopped_;
  return std::move(summary_);
}

Status TuneRun::open(const std::vector<Shape>& shapes) {
  if (space_.configurations.empty()) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: no configurations to choose from{}{}; problem: {}", space_.op,
                    space_.why_empty.empty() ? "" : ": ", space_.why_empty, space_.problem));
  }
  const Result<std::string> nvrtc = machine_.context.nvrtc_version();
  if (!nvrtc) return Status(Code::kUnsupported, std::string(nvrtc.error().message()));
  toolchain_ = toolchain_of(machine_.context, path_kernels(machine_.context, space_));
  summary_.directory =
      settings_.directory.empty() ? tuning_directory(machine_.context) : settings_.directory;
  if (summary_.directory.empty()) {
    return Status(Code::kIo,
                  "no cache directory to write measurements to; name one in "
                  "TuneSettings::directory");
  }
  for (const Shape& shape : shapes) {
    Result<ShapeRun> started = start(shape);
    if (!started) return std::move(started).error();
    shapes_.push_back(*std::move(started));
  }
  if (shapes_.empty()) return {};
  Result<Journal> journal = Journal::open(summary_.directory, shapes_.front().setting, toolchain_,
                                          settings_.again, trust_of(machine_.context));
  if (!journal) return std::move(journal).error();
  journal_ = *std::move(journal);
  for (const ShapeRun& shape : shapes_) {
    if (settings_.again) journal_.forget(shape.setting);
  }
  return {};
}

Result<TuneRun::ShapeRun> TuneRun::start(const Shape& shape) const {
  CUBINERY_RETURN_IF_ERROR(check_shape(space_.op, shape));
  ShapeRun run{};
  run.tuned.shape = shape;
  run.setting = {.op = space_.op,
                 .problem = space_.problem,
                 .shape = shape,
                 .features = tunable_.features(shape),
                 .bucket = {},
                 .gpu = machine_.gpu,
                 .nvrtc = toolchain_.nvrtc,
                 .driver = machine_.driver};
  CUBINERY_RETURN_IF_ERROR(check_shape(space_.op, run.setting.features));
  run.setting.bucket = run.tuned.bucket = bucket_of(run.setting.features);
  run.id = id_of(run.setting);
  const std::size_t all = space_.configurations.size();
  run.tuned.otherwise = run.tuned.chosen = run.tuned.agreed = tunable_.default_configuration(shape);
  if (run.tuned.otherwise >= all) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: default_configuration() is {} for {}; there are {}", space_.op,
                              run.tuned.otherwise, to_text(shape), all));
  }
  run.to_measure = std::min(all, std::max<std::size_t>(1, settings_.exhaustive_up_to));
  run.ms.resize(all);
  return run;
}

// About how long the run-off of a shape that is measured will take, judged by the full measurement
// of its best; none for one that has a result, which most often stays.
Milliseconds TuneRun::run_off_time(const ShapeRun& shape) const {
  if (!shape.best || journal_.settings().at(shape.id).result) return Milliseconds(0);
  const Measurement& best = *known(shape, *shape.best);
  const int replays = std::max(1, best.ms.samples);
  return Milliseconds(best.timing_ms / replays) * kRunOffRounds * kMostContenders;
}

// Whether there is time for more.
bool TuneRun::go_on() {
  const auto elapsed = machine_.timer.now() - start_;
  if (elapsed + reserved_ >= settings_.budget) stopped_ = true;
  if (!stopped_ && settings_.should_stop && settings_.should_stop()) stopped_ = true;
  return !stopped_;
}

void TuneRun::report(const ShapeRun& shape, std::string_view what) const {
  if (!settings_.progress) return;
  TuneProgress progress{.op = space_.op,
                        .bucket = shape.tuned.bucket,
                        .shapes_done = shapes_done_,
                        .shapes = shapes_.size(),
                        .measured = shape.done,
                        .candidates = shape.to_measure,
                        .what = what};
  if (shape.best) {
    progress.best = texts_[*shape.best];
    progress.best_ms = *shape.ms[*shape.best];
  }
  progress.default_ms = shape.ms[shape.tuned.otherwise].value_or(0);
  settings_.progress(progress);
}

const Measurement* TuneRun::known(const ShapeRun& shape, std::size_t configuration) const {
  const auto setting = journal_.settings().find(shape.id);
  if (setting == journal_.settings().end()) return nullptr;
  const auto found = setting->second.measurements.find(texts_[configuration]);
  return found == setting->second.measurements.end() ? nullptr : &found->second;
}

const std::string& TuneRun::templates_of(std::size_t configuration) const {
  return toolchain_.templates.find(path_of(space_.configurations[configuration].values))->second;
}

// After an error of CUDA: OK where it leaves the device usable.  kIo is not CUDA's, and ends
// everything.
Status TuneRun::failed(const Status& error) {
  if (error.code() == Code::kIo) return error.clone();
  const Status usable = machine_.timer.usable();
  if (usable.ok()) return {};
  return Status(Code::kDriver,
                fmt::format("{}: {}; the device's context is lost with it ({}). What was measured "
                            "is kept: the same call in a new process goes on behind it",
                            space_.op, error.message(), usable.message()));
}

// Operands, unless the shape has some; shape->tuned.why where there are none to be had.
Status TuneRun::allocate(ShapeRun* shape) {
  if (shape->workload != nullptr) return {};
  Result<std::unique_ptr<Workload>> workload = tunable_.workload(shape->tuned.shape);
  if (workload) {
    shape->workload = *std::move(workload);
    shape->setting.bytes = shape->workload->bytes();
    return {};
  }
  if (workload.error().code() == Code::kInvalidArgument) return std::move(workload).error();
  CUBINERY_RETURN_IF_ERROR(failed(workload.error()));
  shape->tuned.why = workload.error().message();
  return {};
}

}  // namespace cubinery
