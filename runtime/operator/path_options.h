// Options::paths: which paths an operator may take.  Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/status.h"
#include "results/target.h"

namespace cubinery {

class PathOptions {
 public:
  // Those of operator `op`, whose paths have these names.  kInvalidArgument: an option of this
  // operator names none of them.
  static Result<PathOptions> parse(std::string_view op, const std::vector<std::string_view>& names,
                                   const std::vector<std::string>& options);

  // Why a path may not be taken; nullopt: it may.
  std::optional<std::string> why_not(std::string_view path) const;

 private:
  std::string forced_;                 // empty: any
  std::vector<std::string> excluded_;  // never
};

// "gdn_prefill: no path runs on sm_75 (portable: ...)".
Status no_path(std::string_view op, const Target& target, const std::vector<std::string>& reasons);

}  // namespace cubinery
