#include "benchmarks/results.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace cubinery::bench {
namespace {

using nlohmann::ordered_json;

constexpr int kFormat = 1;

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &utc);
  return text.data();
}

bool has_all(const ordered_json& row, const ordered_json& identity) {
  for (const auto& [name, value] : identity.items()) {
    if (row.contains(name) == value.is_null()) return false;
    if (!value.is_null() && row.at(name) != value) return false;
  }
  return true;
}

}  // namespace

double significant(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return std::strtod(text.data(), nullptr);
}

Results::Results(std::string path, std::string commit)
    : path_(std::move(path)), commit_(std::move(commit)) {
  root_ = {{"format", kFormat}, {"rows", ordered_json::array()}};
  if (path_.empty() || !std::filesystem::exists(path_)) return;
  std::ifstream file(path_);
  root_ = ordered_json::parse(file, nullptr, false);
  if (!root_.is_object() || root_.value("format", 0) != kFormat) {
    throw std::runtime_error(path_ + " is no record of benchmarks of format " +
                             std::to_string(kFormat));
  }
  if (!root_.contains("rows")) root_["rows"] = ordered_json::array();
}

void Results::set(const std::string& name, const ordered_json& value) { root_[name] = value; }

void Results::set_ceiling(const std::string& name, double value) {
  root_["ceilings"][name] = significant(value);
}

void Results::put(const ordered_json& identity, const ordered_json& measured) {
  ordered_json row;
  for (const auto& [name, value] : identity.items()) {
    if (!value.is_null()) row[name] = value;
  }
  for (const auto& [name, value] : measured.items()) row[name] = value;
  row["commit"] = commit_;
  row["date"] = today();
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
  ordered_json& rows = root_["rows"];
  const auto is_old = [&](const ordered_json& other) { return has_all(other, identity); };
  const auto old = std::find_if(rows.begin(), rows.end(), is_old);
  if (old != rows.end()) {
    *old = row;
  } else {
    rows.push_back(row);
  }
  save();
}

// One row per line, so that a diff shows which rows changed.
void Results::save() const {
  if (path_.empty()) return;
  std::string text = "{\n";
  for (const auto& [name, value] : root_.items()) {
    if (name == "rows") continue;
    text += "  " + ordered_json(name).dump() + ": " + value.dump() + ",\n";
  }
  text += "  \"rows\": [";
  const char* separator = "\n";
  for (const ordered_json& row : root_.at("rows")) {
    text += separator + ("    " + row.dump());
    separator = ",\n";
  }
  text += "\n  ]\n}\n";
  const std::string temporary = path_ + ".tmp";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + temporary);
  }
  std::filesystem::rename(temporary, path_);
}

}  // namespace cubinery::bench
