#include "cli/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/print.h"
#include "results/shape.h"

namespace cubinery {
namespace {

using Json = nlohmann::ordered_json;

// Of one space or of all.
struct Counts {
  std::size_t shapes = 0;
  std::size_t buckets = 0;
  std::size_t measurements = 0;  // at most: every configuration for every bucket

  void add(const TuneSpace& space) {
    shapes += space.shapes();
    buckets += space.buckets.size();
    measurements += space.buckets.size() * space.configurations;
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

std::string space_text(const TuneSpace& space) {
  return fmt::format("{}: {} configurations; buckets: {} of {} shapes; problems: {}\n  {}\n",
                     space.op, space.configurations, space.buckets.size(), space.shapes(),
                     space.problems, space.text);
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

}  // namespace

std::string plan_text(const std::vector<TuneSpace>& plan, const TuneReport& report) {
  std::string text;
  Counts counts;
  for (const TuneSpace& space : plan) {
    counts.add(space);
    text += space_text(space);
    Table table({"  bucket", "measured as", "of", "shapes"});
    for (const PlannedShape& planned : space.buckets) {
      table.add({"  " + planned.bucket, to_text(planned.shape), planned.origin,
                 std::to_string(planned.shapes)});
    }
    text += table.text();
  }
  return text + fmt::format(
                    "{}: {} spaces, {} buckets of {} shapes, at most {} measurements "
                    "(dry run: nothing was measured)\n",
                    report.arch, plan.size(), counts.buckets, counts.shapes, counts.measurements);
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
  document["spaces"] = std::move(spaces);
  return document;
}

std::string run_text(const TuneOutcome& run, const TuneReport& report) {
  std::string text;
  for (const TunedSpace& space : run.spaces) {
    if (space.buckets.empty()) continue;
    text += space_text(space.plan);
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
  return text + fmt::format("Results: {}\n", run.directory);
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
