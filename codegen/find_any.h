// Searches for one of several characters, sixteen bytes at a time where the machine can: most of
// the time that megabytes of headers take would go into it, byte by byte.
#pragma once

#include <cstddef>
#include <string_view>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace cubinery {

// Where the next of the characters is, from `i` on; the text's size if there is none.
template <char... kCharacters>
std::size_t find_any(std::string_view text, std::size_t i) {
#if defined(__SSE2__)
  for (; i + sizeof(__m128i) <= text.size(); i += sizeof(__m128i)) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + i));
    __m128i found = _mm_setzero_si128();
    ((found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, _mm_set1_epi8(kCharacters)))), ...);
    const int mask = _mm_movemask_epi8(found);
    if (mask != 0) return i + static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(mask)));
  }
#endif
  while (i < text.size() && !((text[i] == kCharacters) || ...)) ++i;
  return i;
}

}  // namespace cubinery
