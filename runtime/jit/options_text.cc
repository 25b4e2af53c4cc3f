#include "runtime/jit/options_text.h"

#include <algorithm>

namespace cubinery {
namespace {

// An id behind `kind`, "uid:"; the highest is none.
bool take_id(std::string_view text, std::string_view kind, std::vector<std::uint32_t>* ids) {
  std::uint32_t id = 0;
  if (!text.starts_with(kind) || !parse_integer(text.substr(kind.size()), &id)) return false;
  if (id == UINT32_MAX) return false;
  ids->push_back(id);
  return true;
}

}  // namespace

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

std::optional<Trust> parse_trust(std::string_view text) {
  Trust trust;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(part.size());
    if (text == ",") return std::nullopt;
    text.remove_prefix(std::min<std::size_t>(text.size(), 1));
    if (part == "all") {
      trust.everybody = true;
    } else if (!take_id(part, "uid:", &trust.users) && !take_id(part, "gid:", &trust.groups)) {
      return std::nullopt;
    }
  }
  return trust;
}

bool parse_switch(std::string_view text, bool* value) {
  *value = text == "1";
  return text == "0" || text == "1";
}

}  // namespace cubinery
