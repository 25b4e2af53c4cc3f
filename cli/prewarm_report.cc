#include "cli/prewarm_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>

#include "cli/print.h"

namespace cubinery {
namespace {

// Of one core of a server, in the mean over the kernels of Qwen3-Next: decode 0.4, prefill 2.
constexpr double kSecondsToCompile = 1;

int spills(const KernelInfo& info) { return info.spill_store_bytes + info.spill_load_bytes; }

bool is_there(const Outcome& outcome) {
  return outcome.state == OutcomeState::kHit || outcome.state == OutcomeState::kCompiled;
}

// The entries of one kernel for one architecture.
struct Group {
  std::string arch;
  std::string kernel;
  std::size_t entries = 0;
  std::size_t missing = 0;
  std::uint64_t bytes = 0;
  double compile_ms = 0;
  int min_registers = INT_MAX;
  int max_registers = 0;
  int spills = 0;

  void add(const Outcome& outcome) {
    if (!is_there(outcome)) {
      missing += outcome.state == OutcomeState::kMissing ? 1 : 0;
      return;
    }
    ++entries;
    bytes += outcome.bytes;
    compile_ms += outcome.info.compile_ms;
    min_registers = std::min(min_registers, outcome.info.registers);
    max_registers = std::max(max_registers, outcome.info.registers);
    spills += cubinery::spills(outcome.info);
  }
  std::string registers() const {
    return min_registers == max_registers ? std::to_string(max_registers)
                                          : fmt::format("{}-{}", min_registers, max_registers);
  }
};

// In the order of the jobs.  Of a dry run those of kernels that are missing, too.
std::vector<Group> groups_of(const PrewarmReport& report) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < report.jobs.size(); ++i) {
    if (!is_there(report.outcomes[i]) && !report.dry_run) continue;
    const Job& job = report.jobs[i];
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& candidate) {
      return candidate.arch == job.arch && candidate.kernel == job.kernel.name();
    });
    if (group == groups.end()) {
      group = groups.insert(group, {.arch = job.arch, .kernel = job.kernel.name()});
    }
    group->add(report.outcomes[i]);
  }
  return groups;
}

std::string table_text(const PrewarmReport& report) {
  const std::vector<Group> groups = groups_of(report);
  if (groups.empty()) return "";
  if (report.dry_run) {
    Table table({"arch", "kernel", "in the cache", "missing"});
    for (const Group& group : groups) {
      table.add(
          {group.arch, group.kernel, std::to_string(group.entries), std::to_string(group.missing)});
    }
    return table.text();
  }
  Table table({"arch", "kernel", "entries", "size", "compile ms", "registers", "spill bytes"});
  for (const Group& group : groups) {
    table.add({group.arch, group.kernel, std::to_string(group.entries), bytes_text(group.bytes),
               fmt::format("{:.0f}", group.compile_ms), group.registers(),
               std::to_string(group.spills)});
  }
  return table.text();
}

// What went wrong, without the key that it went wrong for.
std::string cause_of(const Job& job, const Outcome& outcome) {
  return std::string(internal::without_key(outcome.error, job.kernel.key())) + "\n" + outcome.log;
}

// Kernels with the same cause share one message.
std::string errors_text(const PrewarmReport& report) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> causes;
  for (std::size_t i = 0; i < report.jobs.size(); ++i) {
    if (report.outcomes[i].state != OutcomeState::kFailed) continue;
    const std::string cause = cause_of(report.jobs[i], report.outcomes[i]);
    auto same = std::find_if(causes.begin(), causes.end(),
                             [&](const auto& known) { return known.first == cause; });
    if (same == causes.end()) same = causes.insert(same, {cause, {}});
    same->second.push_back(i);
  }
  std::string text;
  for (const auto& [cause, failed] : causes) {
    const Job& first = report.jobs[failed.front()];
    const std::string others =
        failed.size() == 1 ? "" : fmt::format(", and {} more in the same way", failed.size() - 1);
    text += fmt::format("failed: {} for {}{}\n{}    key: {}\n", first.kernel.name(), first.arch,
                        others, indented(cause, "    "), first.kernel.key());
  }
  return text;
}

// The kernels of a dry run, each with its key.
std::string list_text(const PrewarmReport& report) {
  std::string text;
  for (std::size_t i = 0; report.dry_run && report.verbose && i < report.jobs.size(); ++i) {
    text += fmt::format("{:<8} {} {}\n", to_string(report.outcomes[i].state), report.jobs[i].arch,
                        report.jobs[i].kernel.key());
  }
  return text;
}

}  // namespace

std::size_t count(const PrewarmReport& report, OutcomeState state) {
  return static_cast<std::size_t>(
      std::count_if(report.outcomes.begin(), report.outcomes.end(),
                    [&](const Outcome& outcome) { return outcome.state == state; }));
}

double seconds_to_compile(const PrewarmReport& report) {
  const std::size_t missing = count(report, OutcomeState::kMissing);
  if (missing == 0) return 0;
  return static_cast<double>(missing) * kSecondsToCompile /
         static_cast<double>(std::min(report.threads, missing));
}

std::string report_text(const PrewarmReport& report) {
  std::string text =
      to_text(report.shard) + list_text(report) + errors_text(report) + table_text(report);
  text += fmt::format("problems: {}, kernels: {}; ", report.problems, report.jobs.size());
  if (!report.dry_run) text += fmt::format("{} compiled, ", count(report, OutcomeState::kCompiled));
  text += fmt::format("{} already in the cache, {} failed", count(report, OutcomeState::kHit),
                      count(report, OutcomeState::kFailed));
  if (!report.left_out.empty()) {
    text += fmt::format(", {} problems left out", report.left_out.json().size());
  }
  if (report.dry_run) {
    const std::size_t missing = count(report, OutcomeState::kMissing);
    text += fmt::format(", {} missing", missing);
    if (missing > 0) {
      text +=
          fmt::format(": about {} to compile, {} at a time",
                      duration_text(seconds_to_compile(report)), std::min(report.threads, missing));
    }
    text += fmt::format(" (dry run: nothing was compiled{})\nCache: {}\n",
                        report.verbose ? "" : "; --verbose lists the kernels", report.cache_dir);
    return text;
  }
  if (report.interrupted) {
    text += fmt::format(", {} not started (interrupted; run the same command again for the rest)",
                        count(report, OutcomeState::kNotStarted));
  }
  return text + fmt::format("; {:.1f} s\nCache: {}\n", report.seconds, report.cache_dir);
}

nlohmann::ordered_json report_json(const PrewarmReport& report) {
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < report.jobs.size(); ++i) {
    const Job& job = report.jobs[i];
    const Outcome& outcome = report.outcomes[i];
    nlohmann::ordered_json entry = {{"kernel", job.kernel.name()},
                                    {"canonical", job.kernel.key()},
                                    {"arch", job.arch},
                                    {"problems", job.problems},
                                    {"source", to_string(outcome.state)},
                                    {"path", outcome.path}};
    if (is_there(outcome)) {
      entry["bytes"] = outcome.bytes;
      entry["nvrtc"] = outcome.info.nvrtc;
      entry["registers"] = outcome.info.registers;
      entry["spills"] = spills(outcome.info);
      entry["compile_ms"] = outcome.info.compile_ms;
    }
    if (!outcome.error.empty()) entry["error"] = outcome.error;
    if (!outcome.log.empty()) entry["log"] = outcome.log;
    entries.push_back(std::move(entry));
  }
  nlohmann::ordered_json document = {{"problems", report.problems},
                                     {"shard", name_of(report.shard)},
                                     {"left_out", report.left_out.json()},
                                     {"requested", report.jobs.size()},
                                     {"compiled", count(report, OutcomeState::kCompiled)},
                                     {"hits", count(report, OutcomeState::kHit)},
                                     {"missing", count(report, OutcomeState::kMissing)},
                                     {"failed", count(report, OutcomeState::kFailed)},
                                     {"not_started", count(report, OutcomeState::kNotStarted)},
                                     {"dry_run", report.dry_run},
                                     {"interrupted", report.interrupted},
                                     {"seconds", report.seconds},
                                     {"cache_dir", report.cache_dir}};
  if (report.dry_run) document["seconds_to_compile"] = seconds_to_compile(report);
  document["entries"] = std::move(entries);
  return document;
}

}  // namespace cubinery
