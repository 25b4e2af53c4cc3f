#include "tuner/measure/search.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <random>
#include <string>

namespace cubinery {
namespace {

// Numbers by their value, in front of texts.
bool is_smaller(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) -> std::optional<long long> {
    long long value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
  };
  const auto x = number(a), y = number(b);
  if (x && y) return *x < *y;
  return x.has_value() != y.has_value() ? x.has_value() : a < b;
}

// The text of every field that some configuration has, by configuration; empty where it is not one
// of its path's.
std::vector<std::vector<std::string>> rows_of(const std::vector<Configuration>& configurations) {
  std::vector<std::string> names;
  for (const Configuration& configuration : configurations) {
    for (const TunedValue& value : configuration.values) {
      if (std::find(names.begin(), names.end(), value.name) == names.end()) {
        names.push_back(value.name);
      }
    }
  }
  std::vector<std::vector<std::string>> rows;
  for (const Configuration& configuration : configurations) {
    std::vector<std::string>& row = rows.emplace_back(names.size());
    for (const TunedValue& value : configuration.values) {
      const auto name = std::find(names.begin(), names.end(), value.name);
      row[static_cast<std::size_t>(name - names.begin())] = value.value;
    }
  }
  return rows;
}

// The values that each field has somewhere, in order.
std::vector<std::vector<std::string>> values_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> values(rows.front().size());
  for (std::size_t field = 0; field < values.size(); ++field) {
    for (const std::vector<std::string>& row : rows) values[field].push_back(row[field]);
    std::sort(values[field].begin(), values[field].end(), is_smaller);
    values[field].erase(std::unique(values[field].begin(), values[field].end()),
                        values[field].end());
  }
  return values;
}

// std::shuffle and the distributions are not the same everywhere; the generator is.
void shuffle(std::vector<std::size_t>* order, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t left = order->size(); left > 1; --left) {
    std::swap((*order)[left - 1], (*order)[random() % left]);
  }
}

}  // namespace

Search::Search(const std::vector<Configuration>& configurations, std::size_t first,
               std::size_t exhaustive_up_to, std::uint64_t seed)
    : order_(configurations.size()),
      at_random_(configurations.size()),
      taken_(configurations.size(), false) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  if (configurations.size() > exhaustive_up_to) {
    at_random_ = static_cast<std::size_t>(kRandomShare * static_cast<double>(exhaustive_up_to)) + 1;
    shuffle(&order_, seed);
    const auto rows = rows_of(configurations);
    const auto values = values_of(rows);
    for (std::size_t i = 0; i < configurations.size(); ++i) {
      Point& point = points_.emplace_back(values.size());
      for (std::size_t field = 0; field < values.size(); ++field) {
        const auto place = std::lower_bound(values[field].begin(), values[field].end(),
                                            rows[i][field], is_smaller);
        point[field] = static_cast<int>(place - values[field].begin());
      }
      configurations_.emplace(point, i);
    }
  }
  const auto place = std::find(order_.begin(), order_.end(), first);
  if (place != order_.end()) std::rotate(order_.begin(), place, place + 1);
}

std::optional<std::size_t> Search::next() {
  if (at_random_ == 0) {
    for (const auto& [ms, configuration] : best_) {
      if (const auto neighbour = neighbour_of(configuration)) return take(*neighbour);
    }
  }
  while (in_order_ < order_.size()) {
    const std::size_t configuration = order_[in_order_++];
    if (taken_[configuration]) continue;
    if (at_random_ > 0) --at_random_;
    return take(configuration);
  }
  return std::nullopt;
}

void Search::tell(std::size_t configuration, std::optional<double> ms) {
  take(configuration);
  std::erase_if(best_, [&](const auto& known) { return known.second == configuration; });
  if (!ms) return;
  const std::pair found(*ms, configuration);
  best_.insert(std::upper_bound(best_.begin(), best_.end(), found), found);
  if (best_.size() > kStarts) best_.pop_back();
}

std::size_t Search::take(std::size_t configuration) {
  taken_[configuration] = true;
  return configuration;
}

std::optional<std::size_t> Search::neighbour_of(std::size_t configuration) const {
  if (points_.empty()) return std::nullopt;
  Point point = points_[configuration];
  for (int& place : point) {
    for (const int step : {-1, 1}) {
      place += step;
      const auto neighbour = configurations_.find(point);
      place -= step;
      if (neighbour != configurations_.end() && !taken_[neighbour->second]) {
        return neighbour->second;
      }
    }
  }
  return std::nullopt;
}

}  // namespace cubinery
