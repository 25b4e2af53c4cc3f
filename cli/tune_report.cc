#include "cli/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/print.h"
#include "codegen/read_json.h"
#include "results/shape.h"
#include "runtime/registry/operators.h"

namespace cubinery {
namespace {

using Json = nlohmann::ordered_json;

// Of a configuration of a bucket, on an H200 (docs/tuning.md).
constexpr double kSecondsToMeasure = 0.04;

// Of one space or of all.
struct Counts {
  std::size_t shapes = 0;
  std::size_t buckets = 0;
  std::size_t measurements = 0;

  void add(const TuneSpace& space) {
    shapes += space.shapes();
    buckets += space.buckets.size();
    measurements += space.measurements();
  }
};

// Over all spaces.
struct RunCounts {
  explicit RunCounts(const TuneOutcome& run) {
    for (const TunedSpace& space : run.spaces) {
      buckets += space.plan.buckets.size();
      decided += static_cast<std::size_t>(
          std::count_if(space.buckets.begin(), space.buckets.end(),
                        [](const TunedBucket& bucket) { return bucket.tuned.complete; }));
      measured += space.measured;
      reused += space.reused;
      rejected += space.rejected;
      stopped = stopped || space.stopped;
    }
  }
  std::size_t buckets = 0, decided = 0;
  std::size_t measured = 0, reused = 0, rejected = 0;  // configurations
  bool stopped = false;
};

// What the space's problem has other than the operator's default problem: "state_dtype=bf16".
std::string changed_text(const TuneSpace& space) {
  const Json usual = *read_json("problem", to_json(default_problem(space.op)));
  const Json object = *read_json("problem", to_json(space.problem));
  std::string changed;
  for (const auto& [name, value] : object.items()) {
    // A space has problems of several head counts.
    const bool is_of_space =
        fmt::format(";{}", space.text).find(fmt::format(";{}=", name)) != std::string::npos;
    if (!is_of_space || usual.value(name, Json()) == value) continue;
    changed += fmt::format("{}{}={}", changed.empty() ? "" : ";", name,
                           value.is_string() ? value.get<std::string>() : value.dump());
  }
  return changed.empty() ? "the default problem" : changed;
}

std::string space_text(const TuneSpace& space, bool verbose) {
  return fmt::format("{}: {} configurations; buckets: {} of {} shapes; problems: {}\n  {}\n",
                     space.op, space.configurations, space.buckets.size(), space.shapes(),
                     space.problems, verbose ? space.text : changed_text(space));
}

// How long the measurements take at most, and what the budget does to that.
std::string time_text(std::size_t measurements, std::chrono::milliseconds budget) {
  const double seconds = static_cast<double>(measurements) * kSecondsToMeasure;
  const double given = std::chrono::duration<double>(budget).count();
  return fmt::format("At most about {}, at {:.0f} ms for a measurement; the budget is {}{}\n",
                     duration_text(seconds), kSecondsToMeasure * 1e3, duration_text(given),
                     given < seconds
                         ? ": the same command goes on where it ended, or give a larger --budget"
                         : "");
}

std::string percent(double share) { return percent_text(share) + " %"; }

// The share of the default's time that the chosen one saves, as in reports.
double gain(const TunedShape& tuned) {
  return tuned.otherwise_ms.median > 0 ? 1 - tuned.chosen_ms.median / tuned.otherwise_ms.median : 0;
}

Json json_of(const Timing& ms) {
  return {{"median", ms.median}, {"p10", ms.p10}, {"p90", ms.p90}, {"samples", ms.samples}};
}

Json json_of(const Shape& shape) {
  Json object = Json::object();
  for (const ShapeSize& size : shape) object[size.name] = size.value;
  return object;
}

Json json_of(const PlannedShape& planned) {
  return {
      {"bucket", planned.bucket}, {"shape", json_of(planned.shape)}, {"shapes", planned.shapes}};
}

Json json_of(const TuneSpace& space) {
  return {{"op", space.op},
          {"problem", space.text},
          {"configurations", space.configurations},
          {"problems", space.problems}};
}

Json json_of(const TunedBucket& bucket) {
  Json object = json_of(bucket.planned);
  object["complete"] = bucket.tuned.complete;
  if (!bucket.tuned.complete) {
    object["why"] = bucket.tuned.why;
    return object;
  }
  object["chosen"] = bucket.chosen;
  object["default"] = bucket.otherwise;
  object["chosen_ms"] = json_of(bucket.tuned.chosen_ms);
  object["default_ms"] = json_of(bucket.tuned.otherwise_ms);
  object["gain"] = gain(bucket.tuned);
  object["margin"] = bucket.tuned.margin;
  object["uncertainty"] = bucket.tuned.uncertainty;
  return object;
}

Json json_of(const TuneReport& report) {
  return {{"arch", report.arch},
          {"gpu", report.gpu},
          {"shard", name_of(report.shard)},
          {"budget_seconds", static_cast<double>(report.budget.count()) / 1e3},
          {"seconds", report.seconds},
          {"interrupted", report.interrupted},
          {"left_out", report.left_out.json()}};
}

void add_row(const TunedBucket& bucket, Table* table) {
  if (!bucket.tuned.complete) {
    table->add({bucket.planned.bucket, "-", "-", "-", "-", "-",
                bucket.tuned.why.empty() ? "not finished" : bucket.tuned.why});
    return;
  }
  const bool is_default = bucket.tuned.chosen == bucket.tuned.otherwise;
  table->add({bucket.planned.bucket, us_text(bucket.tuned.otherwise_ms.median),
              us_text(bucket.tuned.chosen_ms.median), percent(gain(bucket.tuned)),
              percent(bucket.tuned.margin), bucket.otherwise,
              is_default ? "the default" : bucket.chosen});
}

// A line for each space.
std::string spaces_text(const std::vector<TuneSpace>& plan) {
  Table table({"operator", "problems", "configurations", "buckets", "shapes", "problem"});
  for (const TuneSpace& space : plan) {
    table.add({space.op, std::to_string(space.problems), std::to_string(space.configurations),
               std::to_string(space.buckets.size()), std::to_string(space.shapes()),
               changed_text(space)});
  }
  return table.text();
}

// A line for each bucket, under its space.
std::string buckets_text(const std::vector<TuneSpace>& plan) {
  std::string text;
  for (const TuneSpace& space : plan) {
    text += space_text(space, /*verbose=*/true);
    Table table({"  bucket", "measured as", "of", "shapes"});
    for (const PlannedShape& planned : space.buckets) {
      table.add({"  " + planned.bucket, to_text(planned.shape), planned.origin,
                 std::to_string(planned.shapes)});
    }
    text += table.text();
  }
  return text;
}

}  // namespace

std::string plan_text(const std::vector<TuneSpace>& plan, const TuneReport& report) {
  Counts counts;
  for (const TuneSpace& space : plan) counts.add(space);
  return to_text(report.shard) + (report.verbose ? buckets_text(plan) : spaces_text(plan)) +
         fmt::format(
             "{}: {} spaces, {} buckets of {} shapes, at most {} measurements (dry run: nothing "
             "was "
             "measured{})\n",
             report.arch, plan.size(), counts.buckets, counts.shapes, counts.measurements,
             report.verbose ? "" : "; --verbose lists the buckets") +
         time_text(counts.measurements, report.budget);
}

Json plan_json(const std::vector<TuneSpace>& plan, const TuneReport& report) {
  Json document = json_of(report);
  Json spaces = Json::array();
  Counts counts;
  for (const TuneSpace& space : plan) {
    counts.add(space);
    Json object = json_of(space);
    object["buckets"] = Json::array();
    for (const PlannedShape& planned : space.buckets) {
      object["buckets"].push_back(json_of(planned));
      object["buckets"].back()["origin"] = planned.origin;
    }
    spaces.push_back(std::move(object));
  }
  document["dry_run"] = true;
  document["shapes"] = counts.shapes;
  document["buckets"] = counts.buckets;
  document["measurements"] = counts.measurements;
  document["seconds_to_measure"] = static_cast<double>(counts.measurements) * kSecondsToMeasure;
  document["spaces"] = std::move(spaces);
  return document;
}

std::string run_text(const TuneOutcome& run, const TuneReport& report) {
  std::string text = to_text(report.shard);
  for (const TunedSpace& space : run.spaces) {
    if (space.buckets.empty()) continue;
    text += space_text(space.plan, report.verbose);
    Table table({"bucket", "default us", "chosen us", "gain", "margin", "default", "chosen"});
    for (const TunedBucket& bucket : space.buckets) add_row(bucket, &table);
    text += indented(table.text(), "  ");
  }
  const RunCounts counts(run);
  text += fmt::format(
      "{}, {}: {} of {} buckets decided; {} configurations measured, {} known before, "
      "{} rejected; {:.0f} s\n",
      report.gpu, report.arch, counts.decided, counts.buckets, counts.measured, counts.reused,
      counts.rejected, report.seconds);
  if (counts.decided < counts.buckets) {
    text += fmt::format("{}: run the same command again for the rest\n",
                        report.interrupted ? "Interrupted" : "Not finished");
  }
  // A part may have nothing to measure.
  return run.directory.empty() ? text : text + fmt::format("Results: {}\n", run.directory);
}

Json run_json(const TuneOutcome& run, const TuneReport& report) {
  Json document = json_of(report);
  Json spaces = Json::array();
  for (const TunedSpace& space : run.spaces) {
    Json object = json_of(space.plan);
    object["buckets"] = Json::array();
    for (const TunedBucket& bucket : space.buckets) object["buckets"].push_back(json_of(bucket));
    spaces.push_back(std::move(object));
  }
  document["dry_run"] = false;
  const RunCounts counts(run);
  document["stopped"] = counts.stopped;
  document["measured"] = counts.measured;
  document["reused"] = counts.reused;
  document["rejected"] = counts.rejected;
  document["directory"] = run.directory;
  if (!run.error.ok()) document["error"] = run.error.message();
  document["spaces"] = std::move(spaces);
  return document;
}

}  // namespace cubinery
