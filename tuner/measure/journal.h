// What is known of one space on one GPU: the records of the files, and those that tuning adds.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/trust.h"
#include "cubinery/status.h"
#include "results/choose.h"
#include "results/records.h"

namespace cubinery {

// Everything about one setting; configurations by to_text().
struct KnownSetting {
  Setting setting;
  std::map<std::string, Measurement> measurements{};
  std::optional<TuningResult> result{};
  bool has_line = false;  // in the file of measurements

  // The measured time of a configuration; nullptr: there is none, or it is not correct.
  const Timing* time_of(const std::string& configuration) const;
};

// For one thread at a time.
class Journal {
 public:
  // The settings in `directory` with the op, the problem, the GPU and the compiler of `space`; of
  // those, what was measured with these templates.  Damaged lines are passed over.  `again`: what
  // they say of configurations is not used, see forget() for times.  kIo: a file is there and
  // cannot be read, or others than those of `trust` could have written it.
  static Result<Journal> open(const std::string& directory, const Setting& space,
                              const Toolchain& toolchain, bool again, const Trust& trust);

  // The setting, which becomes known.
  KnownSetting& at(const Setting& setting);
  // By id.
  const std::map<std::string, KnownSetting>& settings() const { return settings_; }
  // A measurement of a configuration in any setting that says whether it runs and is right; one
  // that says no before one that says yes.  nullptr: none.
  const Measurement* judged(const std::string& configuration) const;
  // Measurements and result of a setting are not used; the files keep them until there are new
  // ones.
  void forget(const Setting& setting);

  // Appended to the files at once.  kIo.
  Status add(const Setting& setting);  // unless it has a line
  Status add(const Measurement& measurement);
  Status add(const TuningResult& result);

 private:
  void judge(const Measurement& measurement);

  Trust trust_;
  std::string measurements_path_, results_path_;
  std::map<std::string, KnownSetting> settings_;
  std::map<std::string, Measurement> judged_;
};

}  // namespace cubinery
