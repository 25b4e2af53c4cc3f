// The order in which configurations are measured.
#include "tuner/measure/search.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "tests/catch.h"

namespace cubinery {
namespace {

// A space of four fields with a smooth cost that has one optimum; a fifth of it is rejected, at
// random but always the same.
struct Hills {
  static constexpr int kSide = 9;
  std::vector<Configuration> configurations;
  std::vector<std::optional<double>> ms;
  double best = HUGE_VAL;

  explicit Hills(unsigned rejects) {
    for (int i = 0; i < kSide * kSide * kSide * kSide; ++i) {
      const std::array<int, 4> place{i % kSide, i / kSide % kSide, i / kSide / kSide % kSide,
                                     i / kSide / kSide / kSide};
      // The valid part of a product: not every neighbour exists.
      if (place[0] + place[1] > 12) continue;
      Configuration& configuration = configurations.emplace_back();
      double cost = 1;
      constexpr std::array<int, 4> kBest{6, 2, 3, 5};
      for (std::size_t field = 0; field < place.size(); ++field) {
        configuration.values.push_back(
            {std::string(1, static_cast<char>('a' + field)), std::to_string(1 << place[field])});
        cost += 0.03 * static_cast<double>(field + 1) * std::pow(place[field] - kBest[field], 2);
      }
      rejects = rejects * 1664525u + 1013904223u;
      const bool rejected = (rejects >> 16) % 5 == 0;
      ms.push_back(rejected ? std::nullopt : std::optional(cost));
      if (!rejected) best = std::min(best, cost);
    }
  }
};

std::vector<Configuration> line_of(int count) {
  std::vector<Configuration> configurations;
  for (int i = 0; i < count; ++i) {
    configurations.push_back({{{"n", std::to_string(i)}}, {}});
  }
  return configurations;
}

std::vector<std::size_t> order_of(Search search, std::size_t limit,
                                  const std::vector<std::optional<double>>& ms) {
  std::vector<std::size_t> order;
  while (order.size() < limit) {
    const std::optional<std::size_t> next = search.next();
    if (!next) break;
    order.push_back(*next);
    search.tell(*next, ms[*next]);
  }
  return order;
}

TEST_CASE("SmallSpacesAreGoneThroughDefaultFirst", "[cpu]") {
  const std::vector<std::optional<double>> ms{5, 4, 3, 2, 1};
  CHECK(order_of(Search(line_of(5), 2, 5, 1), 10, ms) == std::vector<std::size_t>{2, 0, 1, 3, 4});
  CHECK(order_of(Search(line_of(1), 0, 256, 1), 10, ms) == std::vector<std::size_t>{0});
}

TEST_CASE("EveryConfigurationComesOnce", "[cpu]") {
  const Hills hills(1);
  for (const std::size_t exhaustive_up_to :
       {std::size_t{0}, std::size_t{256}, std::size_t{10000}}) {
    const std::vector<std::size_t> order =
        order_of(Search(hills.configurations, 17, exhaustive_up_to, 1), 100000, hills.ms);
    CHECK(order.front() == 17);
    CHECK(order.size() == hills.configurations.size());
    CHECK(std::set<std::size_t>(order.begin(), order.end()).size() == order.size());
  }
}

TEST_CASE("AllRejectedEnds", "[cpu]") {
  const std::vector<std::optional<double>> none(600);
  CHECK(order_of(Search(line_of(600), 3, 256, 1), 10000, none).size() == 600);
  CHECK(order_of(Search(line_of(100), 3, 256, 1), 10000, none).size() == 100);
}

TEST_CASE("ASeedIsAnOrder", "[cpu]") {
  const Hills hills(1);
  const auto order = [&](std::uint64_t seed) {
    return order_of(Search(hills.configurations, 0, 256, seed), 500, hills.ms);
  };
  CHECK(order(1) == order(1));
  CHECK(order(1) != order(2));
}

TEST_CASE("SearchFindsTheOptimumAfterAFewMeasurements", "[cpu]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Hills hills(static_cast<unsigned>(seed));
    REQUIRE(hills.configurations.size() > 5000);
    double best = HUGE_VAL;
    for (const std::size_t i :
         order_of(Search(hills.configurations, 0, 256, seed), 256, hills.ms)) {
      if (hills.ms[i]) best = std::min(best, *hills.ms[i]);
    }
    INFO("seed " << seed);
    CHECK(best <= 1.02 * hills.best);
  }
}

TEST_CASE("NeighboursDifferInOneFieldByOneStep", "[cpu]") {
  // Values in the order of numbers, not of texts: 8, 16, 128.
  std::vector<Configuration> configurations;
  for (const char* a : {"128", "16", "8"}) {
    for (const char* b : {"false", "true"}) {
      configurations.push_back({{{"a", a}, {"b", b}}, {}});
    }
  }
  const auto after = [&](std::size_t first) {
    Search search(configurations, first, 0, 1);
    CHECK(search.next() == first);
    search.tell(first, 1.0);
    std::set<std::size_t> neighbours;
    // Rejected ones lead no further.
    for (int i = 0; i < (first < 2 || first > 3 ? 2 : 3); ++i) {
      const std::optional<std::size_t> next = search.next();
      REQUIRE(next);
      neighbours.insert(*next);
      search.tell(*next, std::nullopt);
    }
    return neighbours;
  };
  CHECK(after(0) == std::set<std::size_t>{1, 2});
  CHECK(after(2) == std::set<std::size_t>{0, 3, 4});
  CHECK(after(5) == std::set<std::size_t>{3, 4});
}

TEST_CASE("WhatWasToldBeforeIsNotAskedFor", "[cpu]") {
  Search search(line_of(4), 0, 4, 1);
  search.tell(2, 1.0);
  search.tell(0, std::nullopt);
  CHECK(search.next() == 1u);
  CHECK(search.next() == 3u);
  CHECK_FALSE(search.next());

  // But it leads to its neighbours.
  Search large(line_of(1000), 0, 0, 1);
  large.tell(0, 9.0);
  large.tell(500, 1.0);
  CHECK(large.next());  // the one at random
  CHECK(large.next() == 499u);
  CHECK(large.next() == 501u);
}

TEST_CASE("SeveralMayBeAskedForBeforeAnyIsTold", "[cpu]") {
  Search search(line_of(1000), 7, 256, 1);
  std::set<std::size_t> asked;
  for (int i = 0; i < 1000; ++i) asked.insert(*search.next());
  CHECK(asked.size() == 1000);
  CHECK_FALSE(search.next());
}

}  // namespace
}  // namespace cubinery
