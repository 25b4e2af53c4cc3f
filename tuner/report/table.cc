#include "tuner/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace cubinery {
namespace {

bool looks_like_number(std::string_view cell) {
  if (cell == "-") return true;
  if (cell.starts_with('-')) cell.remove_prefix(1);
  return !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
}

}  // namespace

std::string Table::text() const {
  const std::size_t columns = rows_[0].size();
  std::vector<std::size_t> widths(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], rows_[r][c].size());
      if (r > 0 && !looks_like_number(rows_[r][c])) right[c] = false;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      line += right[c] ? fmt::format("{:>{}}  ", row[c], widths[c])
                       : fmt::format("{:<{}}  ", row[c], widths[c]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string us_text(double ms) { return fmt::format("{:.2f}", ms * 1e3); }
std::string percent_text(double share) { return fmt::format("{:.1f}", share * 100); }

}  // namespace cubinery
