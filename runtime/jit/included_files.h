// What the text of a kernel includes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/trust.h"
#include "cubinery/status.h"

namespace cubinery {

struct IncludedFiles {
  // Name as the #include line writes it, text.
  std::vector<std::pair<std::string, std::string>> files;
  std::string digest;  // of all of them; the same for every text without any
};

// `includes`: the folders to look in.  Those of others than `trust` has are kIo (cache/trust.h).
// The library's device headers, "common/..." and "cubinery/...", are always there.
// kInvalidArgument: a directive that names a file which is not there, or no file by its name.
Result<IncludedFiles> included_files(std::string_view source,
                                     const std::vector<std::string>& includes, const Trust& trust);

}  // namespace cubinery
