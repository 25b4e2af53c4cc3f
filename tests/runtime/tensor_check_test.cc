#include "runtime/operator/tensor_check.h"

#include <array>
#include <limits>
#include <string>

#include "tests/catch.h"

namespace cubinery {
namespace {

constexpr TensorName kName{"op", "x"};
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

alignas(16) std::array<char, 64> memory{};

Tensor tensor(std::initializer_list<std::int64_t> shape, DType dtype = DType::kF32) {
  return Tensor::contiguous(memory.data(), dtype, shape);
}

// The message of a refused tensor; empty when it passes.
std::string message(const Status& status) {
  if (!status.ok()) CHECK(status.code() == Code::kInvalidArgument);
  return std::string(status.message());
}

TEST_CASE("ContiguousTensorsHaveRowMajorStrides", "[cpu]") {
  const Tensor t = tensor({2, 3, 4});
  CHECK(t.rank == 3);
  CHECK((t.shape[0] == 2 && t.shape[1] == 3 && t.shape[2] == 4));
  CHECK((t.strides[0] == 12 && t.strides[1] == 4 && t.strides[2] == 1));
  CHECK(t.present());
  CHECK_FALSE(Tensor{}.present());
  CHECK(tensor({1, 1, 1, 1, 1, 1, 1}).rank == Tensor::kMaxRank);
}

TEST_CASE("DataHasItsDtype", "[cpu]") {
  CHECK(check_data(kName, tensor({2}), DType::kF32).ok());
  CHECK(message(check_data(kName, tensor({2}), DType::kBF16)) ==
        "op: x has dtype f32; accepted: bf16");
  CHECK(message(check_data(kName, tensor({2}, static_cast<DType>(9)), DType::kI64)) ==
        "op: x has dtype ?9; accepted: i64");
}

TEST_CASE("DataIsNotNull", "[cpu]") {
  Tensor t = tensor({2});
  t.data = nullptr;
  CHECK(message(check_data(kName, t, DType::kF32)) == "op: x is null; accepted: a device pointer");
}

TEST_CASE("WhatHasNoElementsMayBeNull", "[cpu]") {
  for (Tensor t : {tensor({0}), tensor({2, 0, 3})}) {
    t.data = nullptr;
    CHECK(check_data(kName, t, DType::kF32).ok());
  }
  Tensor ranks = tensor({2, 3});
  ranks.data = nullptr;
  ranks.rank = 2;
  ranks.shape[4] = 0;  // behind its dimensions
  CHECK_FALSE(check_data(kName, ranks, DType::kF32).ok());
}

TEST_CASE("DataIsAlignedToItsElements", "[cpu]") {
  Tensor t = tensor({2}, DType::kI64);
  t.data = memory.data() + 4;
  const std::string text = message(check_data(kName, t, DType::kI64));
  CHECK(text.starts_with("op: x at 0x"));
  CHECK(text.ends_with(" is misaligned; accepted: a multiple of 8 bytes"));
  t.dtype = DType::kF32;
  CHECK(check_data(kName, t, DType::kF32).ok());
}

TEST_CASE("TheShapeMustMatchAndGivesItsStrides", "[cpu]") {
  std::array<std::int64_t, 2> strides{};
  Tensor t = tensor({2, 3});
  t.strides[0] = 100;
  CHECK(check_shape(kName, t, {{"B", 2}, {"heads", 3}}, ExtraDim::kNone, strides.data()).ok());
  CHECK((strides[0] == 100 && strides[1] == 1));

  const auto refused = [&](const Tensor& other) {
    return message(
        check_shape(kName, other, {{"B", 2}, {"heads", 3}}, ExtraDim::kNone, strides.data()));
  };
  const std::string accepted = "; accepted: [B = 2, heads = 3]";
  CHECK(refused(tensor({2, 4})) == "op: x has shape [2, 4]" + accepted);
  CHECK(refused(tensor({3, 2})) == "op: x has shape [3, 2]" + accepted);
  CHECK(refused(tensor({2})) == "op: x has shape [2]" + accepted);
  CHECK(refused(tensor({2, 1, 3})) == "op: x has shape [2, 1, 3]" + accepted);
  CHECK(refused(tensor({-2, 3})) == "op: x has shape [-2, 3]" + accepted);
  CHECK(refused(Tensor{}) == "op: x has shape []" + accepted);
  Tensor ranks = tensor({2, 3});
  ranks.rank = 1000;
  CHECK(refused(ranks).starts_with("op: x has shape [2, 3, 0, 0, 0]"));
  ranks.rank = -1;
  CHECK(refused(ranks) == "op: x has shape []" + accepted);
}

TEST_CASE("ATokenDimensionMayStandBehindTheFirst", "[cpu]") {
  std::array<std::int64_t, 2> strides{};
  const auto check = [&](const Tensor& t) {
    return message(
        check_shape(kName, t, {{"B", 2}, {"heads", 3}}, ExtraDim::kSecond, strides.data()));
  };
  CHECK(check(tensor({2, 3})).empty());
  Tensor t = tensor({2, 1, 3});
  t.strides = {60, 77, 5};
  CHECK(check(t).empty());
  CHECK((strides[0] == 60 && strides[1] == 5));
  const std::string accepted =
      "; accepted: [B = 2, heads = 3], or with one token behind the first dimension";
  CHECK(check(tensor({2, 2, 3})) == "op: x has shape [2, 2, 3]" + accepted);
  CHECK(check(tensor({2, 3, 1})) == "op: x has shape [2, 3, 1]" + accepted);
  CHECK(check(tensor({1, 2, 3})) == "op: x has shape [1, 2, 3]" + accepted);
}

TEST_CASE("ADimensionOfOneMayStandInFront", "[cpu]") {
  std::array<std::int64_t, 2> strides{};
  const auto check = [&](const Tensor& t) {
    return message(
        check_shape(kName, t, {{"total", 2}, {"heads", 3}}, ExtraDim::kFirst, strides.data()));
  };
  CHECK(check(tensor({2, 3})).empty());
  Tensor t = tensor({1, 2, 3});
  t.strides = {77, 60, 5};
  CHECK(check(t).empty());
  CHECK((strides[0] == 60 && strides[1] == 5));
  const std::string accepted =
      "; accepted: [total = 2, heads = 3], or with a dimension of 1 in front";
  CHECK(check(tensor({2, 2, 3})) == "op: x has shape [2, 2, 3]" + accepted);
  CHECK(check(tensor({2, 1, 3})) == "op: x has shape [2, 1, 3]" + accepted);
}

TEST_CASE("WrittenElementsHaveAPlaceEach", "[cpu]") {
  const auto check = [](std::initializer_list<std::int64_t> shape,
                        const std::array<std::int64_t, 5>& strides) {
    Tensor t = tensor(shape);
    t.strides = strides;
    return message(check_no_overlap(kName, t));
  };
  CHECK(check({2, 3}, {3, 1}).empty());
  CHECK(check({2, 3}, {1, 2}).empty());
  CHECK(check({2, 3}, {-3, 1}).empty());
  CHECK(check({2, 3, 4}, {4, 100, 1}).empty());
  CHECK(check({1, 3}, {0, 1}).empty());
  CHECK(check({0, 3}, {0, 0}).empty());
  const auto refused = [](int stride) {
    return "op: x is written and has overlapping elements, by stride " + std::to_string(stride) +
           "; accepted: no overlap";
  };
  CHECK(check({2, 3}, {0, 1}) == refused(0));
  CHECK(check({2, 3}, {2, 1}) == refused(2));
  CHECK(check({2, 3}, {-2, 1}) == refused(2));
  CHECK(check({2, 3, 4}, {8, 4, 1}) == refused(8));
}

TEST_CASE("RowsAreReadWhole", "[cpu]") {
  CHECK(check_innermost(kName, 1).ok());
  CHECK(message(check_innermost(kName, 2)) == "op: x has innermost stride 2; accepted: 1");
}

TEST_CASE("StridesMayNotOverflow", "[cpu]") {
  std::int64_t stride = 0;
  const auto check = [&](std::int64_t value, std::int64_t extent) {
    Tensor t = tensor({extent});
    t.strides[0] = value;
    return message(check_shape(kName, t, {{"n", extent}}, ExtraDim::kNone, &stride));
  };
  const std::string refused =
      "op: x has strides that overflow 64-bit offsets; accepted: strides inside its memory";
  CHECK(check(0, 1000).empty());
  CHECK(check(-8, 1000).empty());
  CHECK(check(kMax / 8, 2).empty());
  CHECK(check(kMax / 4, 2) == refused);
  CHECK(check(kMax, 2) == refused);
  CHECK(check(kMin, 2) == refused);
  CHECK(check(kMin / 4, 2) == refused);  // the product is kMin itself
  CHECK(check(kMin / 8, 2).empty());
  CHECK(check(std::int64_t{1} << 40, std::int64_t{1} << 40) == refused);
  CHECK(check(8, kMax) == refused);
}

// One less than the least would be a number that there is not.
TEST_CASE("NegativeExtentsAreRefused", "[cpu]") {
  std::int64_t stride = 0;
  for (const std::int64_t extent : {std::int64_t{-1}, kMin + 1, kMin}) {
    Tensor t = tensor({extent});
    CHECK(message(check_shape(kName, t, {{"n", extent}}, ExtraDim::kNone, &stride))
              .starts_with("op: x has shape [" + std::to_string(extent) + "]; "));
  }
}

TEST_CASE("StridesOfContiguousTensorsDoNotOverflow", "[cpu]") {
  std::array<std::int64_t, 3> strides{};
  const std::int64_t huge = std::int64_t{1} << 40;
  const Tensor t = tensor({2, huge, huge});
  CHECK(t.strides[0] == kMax);
  CHECK(message(check_shape(kName, t, {{"a", 2}, {"b", huge}, {"c", huge}}, ExtraDim::kNone,
                            strides.data())) ==
        "op: x has strides that overflow 64-bit offsets; accepted: strides inside its memory");
  CHECK(tensor({1, kMin, kMin}).strides[0] == kMax);
}

}  // namespace
}  // namespace cubinery
