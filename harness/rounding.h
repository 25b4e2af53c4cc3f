// Conversions between numbers and the types that tensors are stored in, rounding to nearest even.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cubinery/dtype.h"

namespace cubinery {

inline std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;  // NaN
  } else if (magnitude >= 0x47800000u) {
    half = 0x7c00u;  // 65536 and above: infinity
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14: a whole number of 2^-24.
    half = static_cast<std::uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24f));
  } else {
    half = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

inline float float_from_f16(std::uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const unsigned exponent = (bits >> 10) & 31u;
  const auto fraction = static_cast<float>(bits & 0x3ffu);
  if (exponent == 0) return sign * fraction * 0x1p-24f;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(1024.0f + fraction, static_cast<int>(exponent) - 25);
}

// A format of fp8.
struct Fp8Format {
  int fraction_bits;
  int bias;  // of the exponent
  float largest;
};
inline constexpr Fp8Format kE4M3{3, 7, 448}, kE5M2{2, 15, 57344};
inline const Fp8Format& fp8_format(DType dtype) { return dtype == DType::kF8E4M3 ? kE4M3 : kE5M2; }

// Saturates: what is larger than the largest finite number, infinities too, becomes that.
inline std::uint8_t fp8_from_float(const Fp8Format& format, float value) {
  if (std::isnan(value)) return 0x7f;
  const std::uint32_t sign = std::signbit(value) ? 0x80u : 0;
  const float magnitude = std::min(std::abs(value), format.largest);
  std::uint32_t byte = 0;
  if (magnitude < std::ldexp(1.0f, 1 - format.bias)) {
    // A whole number of the smallest subnormal one.
    const float units = std::ldexp(magnitude, format.bias - 1 + format.fraction_bits);
    byte = static_cast<std::uint32_t>(std::nearbyint(units));
  } else {
    const int dropped = 23 - format.fraction_bits;
    const auto bits = std::bit_cast<std::uint32_t>(magnitude);
    const std::uint32_t half = (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1u);
    byte = ((bits + half) >> dropped) -
           (static_cast<std::uint32_t>(127 - format.bias) << format.fraction_bits);
  }
  return static_cast<std::uint8_t>(sign | byte);
}

inline float float_from_fp8(const Fp8Format& format, std::uint8_t byte) {
  const float sign = (byte & 0x80u) != 0 ? -1.0f : 1.0f;
  const int ones = 1 << format.fraction_bits;
  const int exponent = (byte & 0x7f) / ones, fraction = byte % ones;
  const int significand = exponent == 0 ? fraction : ones + fraction;
  const float magnitude = std::ldexp(static_cast<float>(significand),
                                     std::max(exponent, 1) - format.bias - format.fraction_bits);
  if (magnitude <= format.largest) return sign * magnitude;
  return fraction == 0 ? sign * INFINITY : NAN;  // behind e4m3's largest there is NaN alone
}

// Stores `value` at `to`, rounded to `dtype`.  Requires: a dtype of floats, fp8 among them.
inline void store(DType dtype, std::byte* to, float value) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
  } else if (is_fp8(dtype)) {
    *to = std::byte{fp8_from_float(fp8_format(dtype), value)};
  } else {
    const std::uint16_t bits =
        dtype == DType::kBF16 ? bf16_from_float(value) : f16_from_float(value);
    std::memcpy(to, &bits, sizeof(bits));
  }
}

// Requires: likewise.
inline float load(DType dtype, const std::byte* from) {
  if (is_fp8(dtype)) return float_from_fp8(fp8_format(dtype), std::to_integer<std::uint8_t>(*from));
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return dtype == DType::kBF16 ? float_from_bf16(bits) : float_from_f16(bits);
}

// An element of an i32, i64 or bool tensor.
inline void store_integer(DType dtype, std::byte* to, std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  const bool wide = dtype == DType::kI64;
  if (dtype == DType::kBool) {
    *to = static_cast<std::byte>(value != 0);
    return;
  }
  std::memcpy(to, wide ? static_cast<const void*>(&value) : &narrow,
              wide ? sizeof(value) : sizeof(narrow));
}
inline std::int64_t load_integer(DType dtype, const std::byte* from) {
  if (dtype == DType::kBool) return *from == std::byte{} ? 0 : 1;
  std::int64_t wide = 0;
  std::int32_t narrow = 0;
  if (dtype == DType::kI64) {
    std::memcpy(&wide, from, sizeof(wide));
    return wide;
  }
  std::memcpy(&narrow, from, sizeof(narrow));
  return narrow;
}

inline std::vector<std::byte> integer_bytes(DType dtype, std::span<const std::int64_t> values) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_integer(dtype, bytes.data() + i * size, values[i]);
  }
  return bytes;
}

// `values` as a tensor of `dtype` holds them, and back.  Requires: a dtype of floats, fp8 among
// them.
inline std::vector<std::byte> to_bytes(DType dtype, std::span<const float> values) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) store(dtype, bytes.data() + i * size, values[i]);
  return bytes;
}
inline std::vector<double> from_bytes(DType dtype, std::span<const std::byte> bytes) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  std::vector<double> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load(dtype, bytes.data() + i * size);
  return values;
}

inline float rounded(DType dtype, float value) {
  std::byte bytes[4];
  store(dtype, bytes, value);
  return load(dtype, bytes);
}

// To tf32's 11-bit significand, halves away from zero.
inline float tf32_from_float(float value) {
  if (!std::isfinite(value)) return value;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + 0x1000u) & 0xffffe000u);
}

// As the operand of a matrix product on the tensor cores: f32 is taken as a pair of tf32.
inline float rounded_operand(DType dtype, float value) {
  if (dtype != DType::kF32) return rounded(dtype, value);
  const float high = tf32_from_float(value);
  return high + tf32_from_float(value - high);
}

}  // namespace cubinery
