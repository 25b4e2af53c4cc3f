// Entries and stores for the cache tests.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/store.h"

namespace cubinery::test {

inline Identity sample_identity() {
  return {.kernel = "row_scale",
          .key = "row_scale;dtype=f16;threads=128",
          .template_digest = "00112233445566778899aabbccddeeff",
          .headers_digest = "ffeeddccbbaa99887766554433221100",
          .options = "-std=c++20 -default-device",
          .arch = "sm_90a",
          .nvrtc = "13.0.88"};
}

inline Entry sample_entry() {
  return {.identity = sample_identity(),
          .metadata = R"({"symbol":"row_scale","registers":16})",
          .cubin = std::string("\x7f"
                               "ELF not really a cubin\0\n",
                               25)};
}

// The entry of another kernel of the same size; `n` has one digit.
inline Entry numbered_entry(int n) {
  Entry entry = sample_entry();
  entry.identity.key = "row_scale;dtype=f16;threads=" + std::to_string(n);
  entry.cubin += std::to_string(n);
  return entry;
}

inline Entry entry_of_version(std::string version) {
  Entry entry = sample_entry();
  entry.identity.nvrtc = std::move(version);
  return entry;
}

inline std::vector<ListedEntry> list_all(const Store& store) {
  std::vector<ListedEntry> entries;
  store.for_each([&](ListedEntry entry) { entries.push_back(std::move(entry)); });
  return entries;
}

// What a store has said.
class Log {
 public:
  std::function<void(LogLevel, std::string_view)> callback() {
    return [this](LogLevel, std::string_view text) {
      const std::lock_guard<std::mutex> guard(mutex_);
      lines_.emplace_back(text);
    };
  }

  std::size_t count(std::string_view part) const {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::size_t count = 0;
    for (const std::string& line : lines_) count += line.find(part) != line.npos ? 1 : 0;
    return count;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace cubinery::test
