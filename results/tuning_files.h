// Results in the files of earlier tuning, parsed: what a context keeps so that operators need not
// read them again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/env.h"
#include "cache/trust.h"
#include "cubinery/options.h"
#include "results/choose.h"
#include "results/records.h"

namespace cubinery {

// Thread-safe.
class TuningFiles {
 public:
  using Log = std::function<void(LogLevel, std::string_view)>;
  using Results = std::shared_ptr<const std::vector<TuningResult>>;

  // Results in <cache_dir>/tuning that may answer; never null.  The file is parsed again when its
  // time or size has changed.  Results decide what is compiled, so that they are read under
  // the rules for cubins (cache/trust.h).  A damaged line, or a directory or file that
  // is not read, is one warning.
  Results read(const std::string& cache_dir, const Wanted& wanted, const Trust& trust,
               const Log& log);

 private:
  struct Parsed {
    FileInfo info;
    Results results;
  };
  // A file, and what was wanted of it.
  using Name = std::pair<std::string, std::string>;

  Status check(const std::string& cache_dir, const Trust& trust) const;
  Result<Parsed> parse_file(const std::string& path, const Wanted& wanted, const Trust& trust,
                            const Log& log);
  Results parse(std::string_view text, const std::string& path, const Wanted& wanted,
                const Log& log);
  void warn_once(const std::string& text, const Log& log);

  const std::shared_ptr<Env> env_ = posix_env();
  std::mutex mutex_;
  std::map<Name, Parsed> parsed_;  // guarded by mutex_, as below
  std::set<std::string> warned_;
};

}  // namespace cubinery
