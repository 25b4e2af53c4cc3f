// Results of several machines as one set.  Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tuner/report/report.h"

namespace cubinery {

// What one machine measured.
struct ResultsPart {
  std::string place;  // names it in faults
  TuningReport report;
};

struct MergedResults {
  std::vector<TuningResult> results;  // in the order of the parts, each setting once
  std::size_t repeated = 0;           // settings of several parts: the faster result was taken
  // Why these are not one set; empty: they are.  Lines that are damaged, a part without results,
  // results that are stale (ReportedSetting::stale) or of no problem of the library, several
  // versions of the compiler, times of one setting that differ by more than their uncertainties,
  // and a problem for which parts chose what has other bits: a batch-invariant operator could take
  // the results of one part alone.
  std::vector<std::string> faults;
};

MergedResults merge_results(const std::vector<ResultsPart>& parts);

}  // namespace cubinery
