// Files that the command line carries.
#pragma once

#include <string_view>

namespace cubinery {

struct EmbeddedFile {
  std::string_view path{};  // empty: behind the last
  std::string_view text{};
};

// examples/02_own_kernel, which new-kernel writes under another name.
extern const EmbeddedFile kOwnKernelFiles[];

}  // namespace cubinery
