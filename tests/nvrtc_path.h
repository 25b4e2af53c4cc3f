// Which NVRTC the tests compile with.
#pragma once

#include <cstdlib>
#include <string>

namespace cubinery::test {

// The one that CUBINERY_NVRTC names; empty: the first that is found.
inline std::string nvrtc_path() {
  const char* const path = std::getenv("CUBINERY_NVRTC");
  return path != nullptr ? path : "";
}

}  // namespace cubinery::test
