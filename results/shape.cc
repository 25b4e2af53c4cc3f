#include "results/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "cache/paths.h"
#include "codegen/read_json.h"

namespace cubinery {
namespace {

constexpr std::size_t kMaxSizes = 32;

// Exact for every value: a logarithm in floating point would not be, half way between large powers.
std::uint64_t nearest_power(std::int64_t size) {
  const std::uint64_t value = size < 1 ? 1 : static_cast<std::uint64_t>(size);
  const int shift = std::countl_zero(value);
  constexpr std::uint64_t kHalfWay = 0xb504f333f9de6484;  // sqrt(2) * 2^63, rounded down
  const std::uint64_t power = std::uint64_t{1} << (63 - shift);
  return (value << shift) > kHalfWay ? power << 1 : power;
}

template <class Value>
std::string joined(const Shape& shape, Value value) {
  std::string text;
  for (const ShapeSize& size : shape) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", size.name, value(size));
  }
  return text;
}

}  // namespace

std::uint64_t size_in_bucket(const ShapeSize& size) {
  const bool is_of_problem =
      std::find(std::begin(kOfProblem), std::end(kOfProblem), size.name) != std::end(kOfProblem);
  if (is_of_problem) return static_cast<std::uint64_t>(std::max<std::int64_t>(size.value, 1));
  return nearest_power(size.value);
}

std::string bucket_of(const Shape& features) { return joined(features, size_in_bucket); }

std::size_t nearest_log2(std::int64_t size) {
  return static_cast<std::size_t>(std::countr_zero(nearest_power(size)));
}

std::string to_text(const Shape& shape) {
  return joined(shape, [](const ShapeSize& size) { return size.value; });
}

std::optional<std::int64_t> size_in(const Shape& shape, std::string_view name) {
  const auto size = std::find_if(shape.begin(), shape.end(),
                                 [&](const ShapeSize& one) { return one.name == name; });
  if (size == shape.end()) return std::nullopt;
  return size->value;
}

std::optional<double> distance(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return std::nullopt;
  double sum = 0;
  for (const ShapeSize& size : a) {
    const std::optional<std::int64_t> other = size_in(b, size.name);
    if (!other) return std::nullopt;
    sum += std::abs(std::log2(static_cast<double>(size.value)) -
                    std::log2(static_cast<double>(*other)));
  }
  return sum;
}

Status check_shape(std::string_view op, const Shape& shape) {
  const auto refuse = [&](std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {}", op, what));
  };
  if (shape.empty()) return refuse("the shape has no sizes");
  if (shape.size() > kMaxSizes) {
    return refuse(
        fmt::format("the shape has {} sizes, of which there may be {}", shape.size(), kMaxSizes));
  }
  for (const ShapeSize& size : shape) {
    if (!paths::is_kernel_name(size.name)) {
      return refuse(fmt::format("the name of size \"{}\" is not of letters, digits and _",
                                excerpt(size.name)));
    }
    const auto is_named = [&](const ShapeSize& other) { return other.name == size.name; };
    if (std::count_if(shape.begin(), shape.end(), is_named) > 1) {
      return refuse(fmt::format("the shape has the size {} twice", size.name));
    }
    if (size.value < 1) {
      return refuse(fmt::format("the size {} is {}, which is less than 1", size.name, size.value));
    }
  }
  return {};
}

}  // namespace cubinery
