// What tuning wrote, setting by setting, and its print-outs.  Pure functions, but for
// read_report().
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cubinery/tuning.h"
#include "results/record_file.h"
#include "results/records.h"

namespace cubinery {

// One bucket of one problem on one GPU, with everything that is known of it.
struct ReportedSetting {
  std::string id;  // id_of()
  Setting setting;
  std::vector<Measurement> measurements{};
  std::optional<TuningResult> result{};  // nullopt: there is no decision yet
  // Whether the result is stale here: why; empty: it is not; nullopt: nobody knows.
  std::optional<std::string> stale{};
};

struct TuningReport {
  std::vector<ReportedSetting> settings;  // by op, problem, GPU, toolchain and size
  std::vector<DamagedLine> damaged;
  double copy_rate = 0;  // as ReportRequest::copy_rate
};

TuningReport make_report(const std::vector<Measurements>& measurements,
                         const std::vector<TuningResults>& results);
// Every file of a directory.  kIo.
Result<TuningReport> read_report(const std::string& directory);

// Leaves the settings that fit, and takes the rate.  kInvalidArgument: none fits; names the field,
// as an option of the command line or not, and what it accepts.
Status narrow(TuningReport& report, const ReportRequest& request, bool of_command_line = false);
// The setting that a format for one setting describes: the only one that has measurements.
// kInvalidArgument: there is none, or there are several, which the message lists.
Result<const ReportedSetting*> only_setting(const TuningReport& report);

// The fastest correct measurement; nullptr: none is correct.
const Measurement* best_of(const ReportedSetting& reported);
// Bytes per second; nullopt: the bytes or the time are not known.
std::optional<double> rate_of(const Setting& setting, double ms);
// How much less time the result takes than the default, as a share of the default's.
double gain_of(const TuningResult& result);

// What tuning gained for one operator on one GPU with one toolchain.
struct GainSummary {
  const Setting* setting = nullptr;  // the first one: operator, GPU and toolchain of all
  std::size_t settings = 0;
  std::size_t decided = 0;          // have a result; the numbers below are theirs
  std::size_t keep_default = 0;     // chose the default
  double median = 0, greatest = 0;  // of gain_of()
};
// In the order of the settings.  Points into the report.
std::vector<GainSummary> summaries(const TuningReport& report);

// Why the configuration of a result was chosen, in sentences; empty: there is no result.  `report`
// has the other settings of its problem.
std::string why_chosen(const ReportedSetting& reported, const TuningReport& report);

std::string report_table(const TuningReport& report);
std::string report_json(const TuningReport& report);
std::string report_t4(const ReportedSetting& reported);
std::string report_kernel_tuner(const ReportedSetting& reported);

}  // namespace cubinery
