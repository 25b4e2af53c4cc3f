// Two sets of results, setting by setting: whether they say the same.  Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tuner/report/report.h"

namespace cubinery {

// One setting that both have.  The compilers may differ.
struct ComparedSetting {
  const TuningResult* here = nullptr;
  const TuningResult* there = nullptr;

  bool same_choice() const;
  // How much more time it takes there, as a share: -0.02 is 2 % less.  0: a time is not known.
  double change() const;          // of the chosen configurations
  double default_change() const;  // of the defaults; 0 also where they are not the same one
  // The sum of the two uncertainties.
  double allowed() const;
  // Both changes are allowed, in either direction.
  bool agrees() const;
};

struct Comparison {
  std::vector<ComparedSetting> settings;      // in the order of `here`
  std::size_t only_here = 0, only_there = 0;  // settings with a result
  std::size_t same_choices() const;
  std::size_t agreeing() const;
};

// Settings are the same in operator, problem, bucket and GPU; of several of different compilers
// the last one counts.  Points into both reports.
Comparison compare(const TuningReport& here, const TuningReport& there);

std::string comparison_table(const Comparison& comparison);
std::string comparison_json(const Comparison& comparison);

}  // namespace cubinery
