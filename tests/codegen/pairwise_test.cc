// The cover that sweeps over kernels are cut down to.
#include "tests/pairwise.h"

#include <set>
#include <tuple>

#include "tests/catch.h"

namespace cubinery::test {
namespace {

using Row = std::vector<std::string>;
using Pair = std::tuple<std::size_t, std::string, std::size_t, std::string>;

std::set<Pair> pairs_of(const std::vector<Row>& rows) {
  std::set<Pair> pairs;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (std::size_t j = i + 1; j < row.size(); ++j) pairs.emplace(i, row[i], j, row[j]);
    }
  }
  return pairs;
}

// All combinations that are not excluded.
std::vector<Row> product() {
  std::vector<Row> rows;
  for (const std::string a : {"1", "2", "3", "4"}) {
    for (const std::string b : {"1", "2", "4"}) {
      for (const std::string c : {"x", "y", "z"}) {
        for (const std::string d : {"false", "true"}) {
          if (a == "3" && c == "y") continue;
          rows.push_back({a, b, c, d});
        }
      }
    }
  }
  return rows;
}

TEST_CASE("PairwiseKeepsEveryPairOfValues", "[cpu]") {
  const std::vector<Row> rows = product();
  std::vector<Row> chosen;
  for (const std::size_t row : pairwise(rows)) chosen.push_back(rows[row]);
  CHECK(pairs_of(chosen) == pairs_of(rows));
  CHECK(chosen.size() < rows.size() / 3);
}

TEST_CASE("PairwiseKeepsEveryValueOfOneColumn", "[cpu]") {
  CHECK(pairwise({{"a"}, {"b"}, {"a"}, {"c"}}) == std::vector<std::size_t>{0, 1, 3});
  CHECK(pairwise({{"a", "x"}, {"a", "x"}}) == std::vector<std::size_t>{0});
  CHECK(pairwise({}).empty());
}

}  // namespace
}  // namespace cubinery::test
