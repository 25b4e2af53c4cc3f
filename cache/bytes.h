// What the cache's binary formats are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cubinery {

inline constexpr std::size_t kChecksumBytes = 16;

// 32 bits, little-endian.
void append_u32(std::string* bytes, std::size_t value);
// Requires: offset + 4 <= bytes.size().
std::uint32_t read_u32(std::string_view bytes, std::size_t offset);

// XXH3-128, seed 0, in canonical (big-endian) order.
std::string checksum(std::string_view bytes);

}  // namespace cubinery
