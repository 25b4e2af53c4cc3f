#include "codegen/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cubinery {
namespace {

// Longer words are no misspelling of a name.
constexpr std::size_t kLongestWord = 64;

std::string folded(std::string_view word) {
  std::string text(word);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return text;
}

// Letters that are missing, too many or wrong, and neighbours that changed places.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const bool same = a[i - 1] == b[j - 1];
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongestWord) return "";
  const std::string wanted = folded(word);
  std::vector<std::string> best;
  // A third of the letters may be wrong, and one of any word of more than one letter.
  std::size_t limit = word.size() < 2 ? 0 : std::max<std::size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    const std::string name = folded(candidate);
    std::size_t cost = distance(wanted, name);
    if (wanted.size() >= 3 && name.ends_with("_" + wanted)) cost = std::min<std::size_t>(cost, 1);
    if (wanted.size() >= 3 && name.starts_with(wanted)) cost = 0;
    if (cost > limit) continue;
    if (cost < limit) best.clear();
    limit = cost;
    best.push_back(candidate);
  }
  constexpr std::size_t kMost = 3;  // more would be guessing
  if (best.empty() || best.size() > kMost) return "";
  return fmt::format("; did you mean {}?", fmt::join(best, " or "));
}

std::string nearest_text(std::string_view word, std::vector<std::string> candidates) {
  constexpr std::size_t kMost = 12;
  const std::string wanted = folded(word.substr(0, kLongestWord));
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (std::string& candidate : candidates) {
    const std::size_t cost = distance(wanted, folded(candidate));
    ranked.emplace_back(cost, std::move(candidate));
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, ranked.size()); ++i) {
    text += (i == 0 ? "" : ", ") + ranked[i].second;
  }
  if (ranked.size() > kMost) text += fmt::format(" and {} more", ranked.size() - kMost);
  return text;
}

}  // namespace cubinery
