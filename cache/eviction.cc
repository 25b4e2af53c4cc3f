#include "cache/eviction.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cache/gc.h"
#include "cache/paths.h"

namespace cubinery {
namespace {

constexpr std::int64_t kMeasuredForNs = 3600 * kNsPerSecond;
constexpr std::string_view kMeasured = "measured ";

// More than entries of this library have; so many names need not be looked at.
constexpr std::uint64_t kAmpleEntryBytes = std::uint64_t{256} << 10;

// The number at the front of a text, which it is taken from.
template <class T>
std::optional<T> take_number(std::string_view* text) {
  T number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return number;
}

bool take_word(std::string_view* text, std::string_view word) {
  if (!text->starts_with(word)) return false;
  text->remove_prefix(word.size());
  return true;
}

void replace_usage(const Eviction::Place& place, std::string_view text) {
  (void)replace_file(place.env,
                     {.path = paths::usage_path(place.dir),
                      .temporary = place.temporary(),
                      .mode = place.mode,
                      .finish = nullptr},
                     text);
}

}  // namespace

std::optional<std::uint64_t> parse_usage(std::string_view text, std::int64_t now_ns) {
  if (text.size() >= Env::kMaxLogBytes || !take_word(&text, kMeasured)) return std::nullopt;
  const auto seconds = take_number<std::int64_t>(&text);
  if (!seconds || !take_word(&text, " ")) return std::nullopt;
  const std::int64_t age_ns = now_ns - saturated_ns(*seconds, 0);
  if (age_ns > kMeasuredForNs || age_ns < -kMeasuredForNs) return std::nullopt;
  std::optional<std::uint64_t> bytes = take_number<std::uint64_t>(&text);
  if (!bytes || !take_word(&text, "\n")) return std::nullopt;
  while (!text.empty()) {
    const bool is_more = take_word(&text, "+");
    if (!is_more && !take_word(&text, "-")) return std::nullopt;
    const auto change = take_number<std::uint64_t>(&text);
    // Sums that no disk holds are no sums, and cannot overflow.
    if (!change || !take_word(&text, "\n") || *change >> 62 != 0 || *bytes >> 62 != 0)
      return std::nullopt;
    *bytes = is_more ? *bytes + *change : *bytes - std::min(*bytes, *change);
  }
  return bytes;
}

bool Eviction::added(const Place& place, std::string_view name, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const std::optional<std::uint64_t> counted = count(place, bytes);
  bool is_measured = !counted;
  std::uint64_t total = counted ? *counted : measure(place);
  std::uint64_t removed = 0;
  while (total > place.limit_bytes) {
    if (oldest_last_.empty()) {
      if (is_measured) break;
      total = measure(place);
      is_measured = true;
      continue;
    }
    const DirEntry entry = std::move(oldest_last_.back());
    oldest_last_.pop_back();
    const std::string path = paths::entries_dir(place.dir) + "/" + entry.name;
    FileInfo info;
    // Used since, or gone already: another process has counted that.
    if (place.env.stat(path, &info) || info.mtime_ns != entry.info.mtime_ns) continue;
    if (entry.name == name || place.env.remove(path)) continue;
    total -= std::min(total, entry.info.bytes);
    removed += entry.info.bytes;
  }
  if (is_measured) {
    measured(place, total);
  } else if (removed > 0) {
    std::string ignored;
    (void)place.env.append(paths::usage_path(place.dir), fmt::format("-{}\n", removed), place.mode,
                           &ignored);
  }
  return is_measured;
}

void Eviction::measured(const Place& place, std::uint64_t bytes) {
  replace_usage(place,
                fmt::format("{}{} {}\n", kMeasured, place.env.now_ns() / kNsPerSecond, bytes));
}

// nullopt: nobody has measured, or not lately.
std::optional<std::uint64_t> Eviction::count(const Place& place, std::uint64_t added) {
  const std::string path = paths::usage_path(place.dir);
  const std::string line = fmt::format("+{}\n", added);
  std::string text;
  if (!place.env.append(path, line, place.mode, &text)) {
    return parse_usage(text + line, place.env.now_ns());
  }
  // Another user's, perhaps, in a directory that both may write.
  FileInfo info;
  if (place.env.read(path, &text, &info)) return std::nullopt;
  text += line;
  replace_usage(place, text);
  return parse_usage(text, place.env.now_ns());
}

std::uint64_t Eviction::measure(const Place& place) {
  oldest_last_.clear();
  std::vector<std::string> names;
  const std::error_code error = place.env.list_names(paths::entries_dir(place.dir), &names);
  if (!error && names.size() <= place.limit_bytes / kAmpleEntryBytes) {
    return names.size() * kAmpleEntryBytes;
  }
  oldest_last_ = list_entries(place.env, place.dir);
  sort_by_use(place.env, &oldest_last_);
  std::reverse(oldest_last_.begin(), oldest_last_.end());
  return total_bytes(oldest_last_);
}

}  // namespace cubinery
