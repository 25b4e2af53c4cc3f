// One configuration for each shape, few in all, of the same bits.
#include "tuner/measure/select.h"

#include <string>
#include <vector>

#include "tests/catch.h"

namespace cubinery {
namespace {

constexpr double kWorth = 0.01;
constexpr auto kNone = std::nullopt;

// Configurations of these values of a field that changes bits; a second one makes them unique.
std::vector<Configuration> configurations(const std::vector<int>& bits) {
  std::vector<Configuration> made;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    made.push_back({{{.name = "warps", .value = std::to_string(i)},
                     {.name = "lanes", .value = std::to_string(bits[i]), .changes_bits = true}},
                    {}});
  }
  return made;
}

std::optional<Selection> select(const std::vector<Configuration>& configurations,
                                const std::vector<ShapeTimes>& shapes, double worth) {
  return select(configurations, shapes, worth, {.worth = worth});
}

std::string bits_of(const std::optional<Selection>& selection) {
  return selection ? to_text(selection->bits) : "none";
}

std::vector<std::size_t> best_of(const std::optional<Selection>& selection) {
  std::vector<std::size_t> best;
  if (!selection) return best;
  for (const Finalists& finalists : selection->finalists) best.push_back(finalists.best);
  return best;
}

using Indices = std::vector<std::size_t>;

TEST_CASE("TheFastestIsSelectedAndTheNextRunsAgainstIt", "[tuner]") {
  const auto selection =
      select(configurations({8, 8, 8}), {{{3.0, 1.0, 2.0}, 0}, {{1.0, 3.0, 2.0}, 0}}, kWorth);
  REQUIRE(selection);
  CHECK(best_of(selection) == Indices{1, 0});
  CHECK(selection->finalists[0].runner_up == 2u);
  CHECK(selection->finalists[1].runner_up == 2u);
  CHECK(selection->finalists[1].otherwise == 0u);
}

TEST_CASE("TiesGoToTheLowerIndex", "[tuner]") {
  const auto selection = select(configurations({8, 8, 8}), {{{kNone, 1.0, 1.0}, 0}}, kWorth);
  REQUIRE(selection);
  CHECK(best_of(selection) == Indices{1});
  CHECK(selection->finalists[0].runner_up == 2u);
}

TEST_CASE("TheDefaultWinsTies", "[tuner]") {
  const auto within = select(configurations({8, 8}), {{{1.0, 1.009}, 1}}, kWorth);
  CHECK(best_of(within) == Indices{1});
  REQUIRE(within);
  CHECK(within->finalists[0].runner_up == 0u);  // the fastest may yet win
  CHECK(best_of(select(configurations({8, 8}), {{{1.0, 1.011}, 1}}, kWorth)) == Indices{0});
}

TEST_CASE("BitsAreChosenForAllShapesTogether", "[tuner]") {
  // 4 wins one shape by 10 %, 8 the other by 20 %; the default loses both.
  const auto selection =
      select(configurations({4, 8, 16}), {{{1.0, 1.1, 2.0}, 2}, {{1.2, 1.0, 2.0}, 2}}, kWorth);
  CHECK(bits_of(selection) == "lanes=8");
  REQUIRE(selection);
  for (const Finalists& finalists : selection->finalists) CHECK(finalists.agreed == 1u);
  CHECK(best_of(selection) == Indices{0, 1});  // whatever their bits
  CHECK(selection->finalists[0].runner_up == 1u);
  CHECK(selection->finalists[0].otherwise == 2u);  // the default whatever its bits
}

TEST_CASE("ShapesCountAlikeHoweverLongTheyTake", "[tuner]") {
  // By sums of times, 4 would win: 100 ms count more than 1 ms.
  const auto selection =
      select(configurations({4, 8}), {{{100.0, 101.0}, 1}, {{2.0, 1.0}, 1}}, kWorth);
  CHECK(bits_of(selection) == "lanes=8");
}

TEST_CASE("TheDefaultsBitsStayUnlessOthersAreWorthIt", "[tuner]") {
  const auto bits = [](double other, double worth) {
    return bits_of(select(configurations({4, 8}), {{{other, 1.0}, 1}, {{other, 1.0}, 0}}, worth));
  };
  CHECK(bits(0.995, kWorth) == "lanes=8");
  CHECK(bits(0.98, kWorth) == "lanes=4");
  CHECK(bits(0.98, 0.05) == "lanes=8");
  CHECK(bits(1.0, 0.0) == "lanes=8");
}

// Such as a path that only long sequences gain by.
TEST_CASE("AShapeWithAnotherDefaultIsComparedWithItsBestOfTheUsualBits", "[tuner]") {
  const auto selection = select(configurations({4, 8}), {{{1.0, 2.0}, 0}, {{5.0, 1.0}, 1}}, kWorth);
  CHECK(bits_of(selection) == "lanes=4");
  REQUIRE(selection);
  CHECK(best_of(selection) == Indices{0, 1});
  CHECK(selection->finalists[1].agreed == 0u);
}

TEST_CASE("BitsNeedATimeForEveryShape", "[tuner]") {
  const auto both = configurations({4, 8});
  CHECK(bits_of(select(both, {{{1.0, 9.0}, 1}, {{kNone, 9.0}, 1}}, kWorth)) == "lanes=8");
  CHECK(bits_of(select(both, {{{1.0, 9.0}, 0}, {{kNone, kNone}, 0}}, kWorth)) == "none");
  CHECK(bits_of(select(both, {{{1.0, kNone}, 0}, {{kNone, 1.0}, 0}}, kWorth)) == "none");
  CHECK(bits_of(select(both, {{{1.0}, 0}}, kWorth)) ==
        "lanes=4");  // fewer times than configurations
  CHECK(bits_of(select(both, {}, kWorth)) == "none");
}

TEST_CASE("NoShapeLosesToItsDefault", "[tuner]") {
  // The bits of the third are best on average, but cost the second shape 5 %.
  const auto selection =
      select(configurations({8, 4, 16}), {{{1.0, 0.98, 0.5}, 0}, {{1.0, 0.97, 1.05}, 0}}, kWorth);
  CHECK(bits_of(selection) == "lanes=4");
  const auto cheap =
      select(configurations({8, 4, 16}), {{{1.0, 0.98, 0.5}, 0}, {{1.0, 0.97, 1.005}, 0}}, kWorth);
  CHECK(bits_of(cheap) == "lanes=16");
}

TEST_CASE("RejectedDefaultsAreNotTaken", "[tuner]") {
  const auto selection = select(configurations({8, 8}), {{{kNone, 5.0}, 0}}, kWorth);
  CHECK(best_of(selection) == Indices{1});
  REQUIRE(selection);
  CHECK(selection->finalists[0].otherwise == 0u);
}

TEST_CASE("FewConfigurationsServeManyShapes", "[tuner]") {
  // Each shape has its own best; 3 is within 1 % for all.
  const auto four = configurations({8, 8, 8, 8, 8});
  const auto all = select(four,
                          {{{1.0, 2.0, 2.0, 1.009, 9.0}, 4},
                           {{2.0, 1.0, 2.0, 1.009, 9.0}, 4},
                           {{2.0, 2.0, 1.0, 1.009, 9.0}, 4}},
                          kWorth);
  CHECK(best_of(all) == Indices{3, 3, 3});
  // For the last one it is not.
  const auto two = select(four,
                          {{{1.0, 2.0, 2.0, 1.009, 9.0}, 4},
                           {{2.0, 1.0, 2.0, 1.009, 9.0}, 4},
                           {{2.0, 2.0, 1.0, 1.02, 9.0}, 4}},
                          kWorth);
  CHECK(best_of(two) == Indices{3, 3, 2});
}

TEST_CASE("ADefaultInUseServesOtherShapesToo", "[tuner]") {
  // 0 is the default of the first shape and good for the second, whose own default is slow.
  const auto selection =
      select(configurations({8, 8, 8}), {{{1.0, 1.0, 2.0}, 0}, {{1.005, 1.0, 2.0}, 2}}, kWorth);
  CHECK(best_of(selection) == Indices{0, 0});
}

TEST_CASE("WhatIsInUseServesWhereAnotherIsNotWorthIt", "[tuner]") {
  const auto three = configurations({8, 8, 8});
  const std::vector<ShapeTimes> shapes{{{1.0, 1.015, 2.0}, 2}, {{1.0, 1.03, 2.0}, 2}};
  const auto best = [&](const Fewness& few) { return best_of(select(three, shapes, kWorth, few)); };
  CHECK(best({.worth = 0.02}) == Indices{0, 0});
  CHECK(best({.worth = 0.02, .in_use = {1}}) == Indices{1, 0});  // the second loses 3 % by it
  CHECK(best({.worth = 0.01, .in_use = {1}}) == Indices{0, 0});
  // A default of a shape goes before what is in use.
  CHECK(best_of(select(three, {{{1.01, 1.0, 2.0}, 0}}, kWorth, {.worth = 0.02, .in_use = {1}})) ==
        Indices{0});
}

TEST_CASE("FewerConfigurationsChangeNoBits", "[tuner]") {
  // 4 gains 1.5 %, more than bits are worth; what is in use has the usual ones.
  const auto selection =
      select(configurations({4, 8}), {{{1.0, 1.015}, 1}}, kWorth, {.worth = 0.02, .in_use = {1}});
  CHECK(bits_of(selection) == "lanes=4");
  CHECK(best_of(selection) == Indices{1});
}

TEST_CASE("OfConfigurationsThatServeAsManyTheFastestIsTaken", "[tuner]") {
  const auto selection =
      select(configurations({8, 8, 8}), {{{1.009, 1.0, 9.0}, 2}, {{1.009, 1.001, 9.0}, 2}}, kWorth);
  CHECK(best_of(selection) == Indices{1, 1});
}

std::vector<Configuration> of_paths(const std::vector<std::string>& paths) {
  std::vector<Configuration> made;
  for (const std::string& path : paths) {
    made.push_back({{{.name = "path", .value = path, .changes_bits = true}}, {}});
  }
  return made;
}

// An operator that has decided which path serves all shapes has results for that one, though others
// are faster, and though a shape is slower by it than by its default.
TEST_CASE("TheAgreedPathIsTheOneThatIsAskedFor", "[tuner]") {
  const auto both = of_paths({"portable", "wide"});
  const std::vector<ShapeTimes> shapes = {{{1.0, 5.0}, 0}, {{1.0, 0.5}, 0}};
  const auto agreed = [&](const std::vector<ShapeTimes>& times, std::string_view path) {
    return select(both, times, kWorth, {.worth = kWorth}, path);
  };
  CHECK(bits_of(agreed(shapes, "")) == "path=portable");
  const auto wide = agreed(shapes, "wide");
  CHECK(bits_of(wide) == "path=wide");
  CHECK(best_of(wide) == Indices{0, 1});  // each shape's own best is what it was
  CHECK(wide->finalists[0].agreed == 1u);
  // A path without configurations decides nothing, nor does one without a time somewhere: each
  // shape has its best all the same.
  CHECK(bits_of(agreed(shapes, "other")) == "path=portable");
  const auto missing = agreed({{{1.0, kNone}, 0}, {{1.0, 0.5}, 0}}, "wide");
  CHECK(bits_of(missing) == "path=portable");
  CHECK(best_of(missing) == Indices{0, 1});
}

}  // namespace
}  // namespace cubinery
