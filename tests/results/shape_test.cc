// Buckets, distances and texts of shapes; texts of configurations and choices.
#include "results/shape.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace cubinery {
namespace {

TEST_CASE("BucketsRoundToTheNearestPowerOfTwo", "[cpu]") {
  const auto bucket = [](std::int64_t size) { return bucket_of({{"n", size}}); };
  CHECK(bucket(1) == "n=1");
  CHECK(bucket(2) == "n=2");
  CHECK(bucket(3) == "n=4");  // 2.83 is half way between 2 and 4
  CHECK(bucket(5) == "n=4");  // 5.66
  CHECK(bucket(6) == "n=8");
  CHECK(bucket(11) == "n=8");  // 11.3
  CHECK(bucket(12) == "n=16");
  CHECK(bucket(181) == "n=128");  // 181.02
  CHECK(bucket(182) == "n=256");
  CHECK(bucket_of({{"states", 256}, {"skew", 1}}) == "states=256;skew=1");
}

TEST_CASE("BucketsKeepWhatIsOfTheProblem", "[cpu]") {
  CHECK(bucket_of({{"states", 48}, {"group", 3}}) == "states=64;group=3");
  CHECK(bucket_of({{"states", 64}, {"group", 4}}) == "states=64;group=4");
  CHECK(bucket_of({{"group", 0}}) == "group=1");
}

TEST_CASE("BucketsOfLargeSizesAreExact", "[cpu]") {
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  CHECK(bucket_of({{"n", largest}}) == "n=9223372036854775808");
  CHECK(bucket_of({{"n", largest / 2 + 1}}) == "n=4611686018427387904");
  // Either side of sqrt(2) * 2^62.
  CHECK(bucket_of({{"n", 6521908912666391106}}) == "n=4611686018427387904");
  CHECK(bucket_of({{"n", 6521908912666391107}}) == "n=9223372036854775808");
}

TEST_CASE("EveryPowerOfTwoIsItsOwnBucket", "[cpu]") {
  for (int i = 0; i < 63; ++i) {
    const Shape shape{{"n", std::int64_t{1} << i}};
    CHECK(bucket_of(shape) == to_text(shape));
  }
}

TEST_CASE("ShapesPrintTheirSizes", "[cpu]") {
  CHECK(to_text(Shape{{"batch", 7}, {"heads", 33}}) == "batch=7;heads=33");
  CHECK(to_text(Shape{}) == "");
}

TEST_CASE("DistanceSumsTheLogarithms", "[cpu]") {
  CHECK(distance({{"a", 8}, {"b", 2}}, {{"a", 2}, {"b", 16}}) == 5.0);
  CHECK(distance({{"a", 8}, {"b", 2}}, {{"b", 2}, {"a", 8}}) == 0.0);
  CHECK(*distance({{"a", 3}}, {{"a", 1}}) == Approx(std::log2(3.0)));
}

TEST_CASE("OtherSizesHaveNoDistance", "[cpu]") {
  CHECK_FALSE(distance({{"a", 8}}, {{"b", 8}}));
  CHECK_FALSE(distance({{"a", 8}}, {{"a", 8}, {"b", 1}}));
  CHECK_FALSE(distance({{"a", 8}, {"b", 1}}, {{"a", 8}}));
}

TEST_CASE("GoodShapesPass", "[cpu]") {
  CHECK(check_shape("k", {{"rows", 1}, {"Cols_2", 4096}}).ok());
}

TEST_CASE("BadShapesAreRefusedInWords", "[cpu]") {
  const auto why = [](const Shape& shape) {
    const Status status = check_shape("row_scale", shape);
    CHECK(status.code() == Code::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK(why({}) == "row_scale: the shape has no sizes");
  CHECK(why({{"rows", 0}}) == "row_scale: the size rows is 0, which is less than 1");
  CHECK(why({{"rows", 2}, {"cols", -3}}) == "row_scale: the size cols is -3, which is less than 1");
  CHECK(why({{"rows", 2}, {"rows", 2}}) == "row_scale: the shape has the size rows twice");
  CHECK(why({{"", 2}}) == "row_scale: the name of size \"\" is not of letters, digits and _");
  CHECK(why({{"a b", 2}}) == "row_scale: the name of size \"a b\" is not of letters, digits and _");
  CHECK(why({{"a=1;b", 2}}) ==
        "row_scale: the name of size \"a=1;b\" is not of letters, digits and _");
  Shape many;
  for (int i = 0; i < 33; ++i) many.push_back({"size" + std::to_string(i), 1});
  CHECK(why(many) == "row_scale: the shape has 33 sizes, of which there may be 32");
  many.pop_back();
  CHECK(check_shape("row_scale", many).ok());
}

TEST_CASE("ConfigurationsPrintTheirValues", "[cpu]") {
  CHECK(to_text(std::vector<TunedValue>{{"warps", "4"}, {"order", "tree", true}}) ==
        "warps=4;order=tree");
  CHECK(to_text(std::vector<TunedValue>{}) == "");
}

TEST_CASE("ConfigurationsAreFoundByNamesAndValues", "[cpu]") {
  TuningSpace space;
  for (const char* warps : {"1", "2", "4"}) {
    space.configurations.push_back({{{"warps", warps, false, true}, {"vec", "8"}}, {}});
  }
  CHECK(index_of(space, {{"warps", "2"}, {"vec", "8"}}) == 1);
  CHECK(index_of(space, {{"warps", "8"}, {"vec", "8"}}) == 3);
  CHECK(index_of(space, {{"warps", "2"}}) == 3);
  CHECK(index_of(space, {{"warps", "2"}, {"vec", "8"}, {"more", "1"}}) == 3);
  CHECK(index_of(space, {{"lanes", "2"}, {"vec", "8"}}) == 3);
}

TEST_CASE("RungsHaveNames", "[cpu]") {
  CHECK(std::string(to_string(Rung::kExact)) == "exact");
  CHECK(std::string(to_string(Rung::kNearestShape)) == "nearest shape");
  CHECK(std::string(to_string(Rung::kSimilarProblem)) == "similar problem");
  CHECK(std::string(to_string(Rung::kSameArch)) == "same architecture");
  CHECK(std::string(to_string(Rung::kStale)) == "stale");
  CHECK(std::string(to_string(Rung::kDefault)) == "default");
}

}  // namespace
}  // namespace cubinery
