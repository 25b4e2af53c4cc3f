// Buckets of shapes, and how far shapes are from each other.  Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cubinery/tuning.h"

namespace cubinery {

// A size as buckets have it: the nearest power of two (half way in the logarithm, up), but those in
// kOfProblem as they are.  Sizes below 1 are taken as 1.
std::uint64_t size_in_bucket(const ShapeSize& size);
// Features that are of the problem, and no size of a launch: value heads for each key head.  With 3
// of them there are three quarters of the heads with 4, which fill a GPU otherwise.
inline constexpr std::string_view kOfProblem[] = {"group"};

// "states=256;skew=1": of each size what size_in_bucket() says. Persistent: results are found by
// it.
std::string bucket_of(const Shape& features);

// The exponent of the nearest power of two.  Sizes below 1 are taken as 1.
std::size_t nearest_log2(std::int64_t size);

// "batch=8;heads=32": the sizes as they are.
std::string to_text(const Shape& shape);

// The size of this name, or nullopt.
std::optional<std::int64_t> size_in(const Shape& shape, std::string_view name);

// Sum over the sizes of |log2 a - log2 b|; nullopt: they do not name the same sizes.
std::optional<double> distance(const Shape& a, const Shape& b);

// kInvalidArgument: no size at all, a name that is empty, given twice or holds other characters
// than letters, digits and _, or a value below 1.
Status check_shape(std::string_view op, const Shape& shape);

}  // namespace cubinery
