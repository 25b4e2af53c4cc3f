#include "runtime/operator/path_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace cubinery {

Result<PathOptions> PathOptions::parse(std::string_view op,
                                       const std::vector<std::string_view>& names,
                                       const std::vector<std::string>& options) {
  PathOptions parsed;
  for (const std::string& option : options) {
    std::string_view path = option;
    if (!path.starts_with(fmt::format("{}=", op))) continue;
    path.remove_prefix(op.size() + 1);
    const bool excludes = path.starts_with('-');
    if (excludes) path.remove_prefix(1);
    if (std::find(names.begin(), names.end(), path) == names.end()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("Options::paths has \"{}\"; paths of {}: {}", option, op,
                                fmt::join(names, ", ")));
    }
    if (excludes) {
      parsed.excluded_.emplace_back(path);
    } else {
      parsed.forced_ = path;
    }
  }
  return parsed;
}

std::optional<std::string> PathOptions::why_not(std::string_view path) const {
  if (!forced_.empty() && path != forced_) {
    return fmt::format("Options::paths asks for {}", forced_);
  }
  if (std::find(excluded_.begin(), excluded_.end(), path) == excluded_.end()) return std::nullopt;
  return "excluded by Options::paths";
}

Status no_path(std::string_view op, const Target& target, const std::vector<std::string>& reasons) {
  return Status(Code::kUnsupported, fmt::format("{}: no path computes this problem on {} ({})", op,
                                                target.arch.name(), fmt::join(reasons, "; ")));
}

}  // namespace cubinery
