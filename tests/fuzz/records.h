// What is made of records that were read.
#pragma once

#include "tests/fuzz/target.h"
#include "tuner/report/report.h"

namespace cubinery::fuzz {

// In every format.
inline void report(const std::vector<Measurements>& measurements,
                   const std::vector<TuningResults>& results) {
  TuningReport report = make_report(measurements, results);
  report.copy_rate = 4e12;
  (void)report_table(report);
  require(!report_json(report).empty());
  for (const ReportedSetting& setting : report.settings) {
    if (setting.measurements.empty()) continue;
    require(!report_t4(setting).empty());
    require(!report_kernel_tuner(setting).empty());
  }
}

}  // namespace cubinery::fuzz
