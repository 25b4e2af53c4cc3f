// Where libnvrtc may lie.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cubinery {

// The libraries that lie in the usual places, in the order of docs/design.md; of several versions
// the highest first.  `root`: "/", but for tests.  `own`: the folders of what asks, a program or a
// library: the PyPI wheel may be beside it.
std::vector<std::string> nvrtc_places(const std::filesystem::path& root,
                                      const std::vector<std::filesystem::path>& own);

}  // namespace cubinery
