// Tables as text.  Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cubinery {

// Rows under a header, in columns as wide as their widest cell; columns of numbers align right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  // Requires: as many cells as the header has.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Lines that end in '\n', the header first.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Cells: microseconds, and a share as percent.
std::string us_text(double ms);
std::string percent_text(double share);

}  // namespace cubinery
