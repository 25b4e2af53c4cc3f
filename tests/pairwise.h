// Which rows of a table to try where all of them would take too long.  A pure function.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cubinery::test {

// Rows that hold every pair of values of two columns which any row holds, and so every value: a
// greedy cover, of rows with equal gain the first.  Requires: rows of equal length.
inline std::vector<std::size_t> pairwise(const std::vector<std::vector<std::string>>& rows) {
  // Values as numbers, those of different columns apart.
  std::map<std::pair<std::size_t, std::string>, std::size_t> numbers;
  std::vector<std::vector<std::size_t>> table;
  for (const std::vector<std::string>& row : rows) {
    std::vector<std::size_t>& numbered = table.emplace_back();
    for (std::size_t column = 0; column < row.size(); ++column) {
      numbered.push_back(numbers.try_emplace({column, row[column]}, numbers.size()).first->second);
    }
  }
  const std::size_t values = numbers.size();
  std::vector<char> covered(values * values);
  const auto for_each_pair = [&](std::size_t row, const auto& function) {
    const std::vector<std::size_t>& of = table[row];
    for (std::size_t i = 0; i < of.size(); ++i) {
      for (std::size_t j = i; j < of.size(); ++j) function(&covered[of[i] * values + of[j]]);
    }
  };
  std::vector<std::size_t> chosen;
  // What rows would add never grows.
  std::vector<std::size_t> most(rows.size(), SIZE_MAX);
  for (;;) {
    std::size_t best = 0, best_row = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (most[row] <= best) continue;
      std::size_t gain = 0;
      for_each_pair(row, [&](const char* pair) { gain += *pair == 0 ? 1 : 0; });
      most[row] = gain;
      if (gain > best) best = gain, best_row = row;
    }
    if (best == 0) return chosen;
    for_each_pair(best_row, [](char* pair) { *pair = 1; });
    chosen.push_back(best_row);
  }
}

}  // namespace cubinery::test
