// The order of versions.
#include "cache/version_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace cubinery {
namespace {

TEST_CASE("VersionsOrderAsNumbers", "[cache]") {
  // From the lowest to the highest.
  const std::vector<std::string> versions = GENERATE(
      std::vector<std::string>{"12.9.99", "13", "13.0", "13.0.88", "13.1", "13.2", "13.2.1",
                               "13.10", "13.100", "99999999999999999999.1",
                               "100000000000000000000.0"},
      std::vector<std::string>{"cuda-12.9", "cuda-13", "cuda-13.2", "cuda-13.10", "cuda-rc"},
      std::vector<std::string>{"", "python3", "python3.9", "python3.012", "python3.13",
                               "python3.13t"});
  for (std::size_t i = 0; i < versions.size(); ++i) {
    for (std::size_t j = 0; j < versions.size(); ++j) {
      INFO(versions[i] << ", " << versions[j]);
      CHECK(version_less(versions[i], versions[j]) == (i < j));
    }
  }
  CHECK_FALSE(version_less("13.02", "13.2"));
  CHECK_FALSE(version_less("13.2", "13.02"));
}

}  // namespace
}  // namespace cubinery
