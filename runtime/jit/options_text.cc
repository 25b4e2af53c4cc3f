#include "runtime/jit/options_text.h"

#include <algorithm>

namespace cubinery {

std::vector<std::string> split_at_colons(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(':'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  if (unit != kUnits.npos) text.remove_suffix(1);
  const int shift = unit == kUnits.npos ? 0 : 10 * (static_cast<int>(unit) + 1);
  std::uint64_t value = 0;
  if (!parse_integer(text, &value) || value > (UINT64_MAX >> shift)) return std::nullopt;
  return value << shift;
}

bool parse_switch(std::string_view text, bool* value) {
  *value = text == "1";
  return text == "0" || text == "1";
}

}  // namespace cubinery
