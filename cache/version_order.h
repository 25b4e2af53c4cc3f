// The order of versions, and of names that have them.
#pragma once

#include <algorithm>
#include <string_view>

namespace cubinery {

// Whether `a` comes before `b` where digits in a row are one number: "13.2" before "13.10",
// "python3.9" before "python3.12".
inline bool version_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto take_number = [&](std::string_view* text) {
    const auto end = std::find_if_not(text->begin(), text->end(), is_digit);
    std::string_view digits = text->substr(0, static_cast<std::size_t>(end - text->begin()));
    text->remove_prefix(digits.size());
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    return digits;
  };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view one = take_number(&a), other = take_number(&b);
      if (one.size() != other.size()) return one.size() < other.size();
      if (one != other) return one < other;
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

}  // namespace cubinery
