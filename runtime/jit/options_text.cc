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

bool parse_switch(std::string_view text, bool* value) {
  *value = text == "1";
  return text == "0" || text == "1";
}

}  // namespace cubinery
