// Buckets of shapes, and how far shapes are from each other.  Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cubinery/tuning.h"

namespace cubinery {

// "states=256;skew=1": each size rounded to the nearest power of two (half way in the logarithm,
// up). Persistent: results are found by it.
std::string bucket_of(const Shape& features);

// The exponent of that power of two.  Sizes below 1 are taken as 1.
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
