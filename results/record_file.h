// The files that tuning writes:
//
//   <directory>/<op>.measurements.jsonl   settings and measurements, appended as they are made
//   <directory>/<op>.results.jsonl        results; of two for one setting the later one counts
//
// Thread-safe functions; several processes may append to one file.  docs/tuning_files.md has the
// rules.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cache/trust.h"
#include "cubinery/status.h"
#include "results/records.h"

namespace cubinery {

// A line that was passed over.
struct DamagedLine {
  std::string path;
  int line = 0;  // from 1
  std::string what;
  std::string text() const;  // "path:12: not JSON: ..."
};

struct Measurements {
  std::map<std::string, Setting> settings;  // by id
  std::vector<Measurement> measurements;    // of settings that are there; later ones of one
                                            // configuration and setting replace earlier ones
  std::vector<DamagedLine> damaged;
};

struct TuningResults {
  std::vector<TuningResult> results;  // the last of each setting
  std::vector<DamagedLine> damaged;
};

std::string measurements_path(const std::string& directory, std::string_view op);
std::string results_path(const std::string& directory, std::string_view op);
// Names of operators and kernels that the directory has files of, sorted; an absent directory
// has none.  kIo: it is there and cannot be listed.
Result<std::vector<std::string>> tuned_operators(const std::string& directory);

// A file that is absent has no records.  kIo: it is there and cannot be read, or others than those
// of `trust` could have written it (cache/trust.h): what is launched must not depend on them.
Result<Measurements> read_measurements(const std::string& path,
                                       const Trust& trust = {.everybody = true});
Result<TuningResults> read_results(const std::string& path,
                                   const Trust& trust = {.everybody = true});
// Calls `take` with each line that is not blank, and its number, from 1.  A carriage return at its
// end is white space to JSON.
template <class Take>
void for_each_line(std::string_view text, Take take) {
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") != line.npos) take(line, number);
  }
}

// Of the text of such files; `path` only names them in damage.  Records of the other file are no
// damage, and of no interest.
Measurements parse_measurements(std::string_view text, const std::string& path);
TuningResults parse_results(std::string_view text, const std::string& path);

// Appends lines, each ending in '\n', with one write and syncs them: a crash leaves whole lines, or
// one cut line at the end, which the next append closes.  Makes the directory (mode 0700).  Waits
// at most `lock_wait` for another process that appends, then goes on beside it: what that can cost
// is a blank line.  kIo: the file cannot be written, or is a symbolic link, or others than
// those of `trust` own or can write it.
Status append_lines(const std::string& path, std::string_view lines, const Trust& trust = {},
                    std::chrono::milliseconds lock_wait = std::chrono::seconds(2));

}  // namespace cubinery
