#include "cache/bytes.h"

#include <iterator>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cubinery {

void append_u32(std::string* bytes, std::size_t value) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes->push_back(static_cast<char>((value >> shift) & 0xff));
  }
}

std::uint32_t read_u32(std::string_view bytes, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return value;
}

std::string checksum(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return std::string(std::begin(canonical.digest), std::end(canonical.digest));
}

}  // namespace cubinery
