// Text that may be no UTF-8, as paths may be.
#pragma once

#include <cstddef>
#include <string_view>

namespace cubinery {

// Bytes of the UTF-8 character that the text begins with; 0: it begins with none.  Requires: the
// text is not empty.
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than need be, half of a surrogate pair, or behind the last character.
  const unsigned second = byte(1);
  const bool is_good = first == 0xe0   ? second >= 0xa0
                       : first == 0xed ? second < 0xa0
                       : first == 0xf0 ? second >= 0x90
                       : first == 0xf4 ? second < 0x90
                                       : true;
  return is_good ? length : 0;
}

// Whether all of it is UTF-8.
inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace cubinery
