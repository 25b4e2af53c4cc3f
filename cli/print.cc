#include "cli/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace cubinery {

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  int shift = 0;
  if (text.ends_with('K')) shift = 10;
  if (text.ends_with('M')) shift = 20;
  if (text.ends_with('G')) shift = 30;
  if (shift != 0) text.remove_suffix(1);
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value > (UINT64_MAX >> shift)) return std::nullopt;
  return value << shift;
}

std::string age_text(std::int64_t then_unix, std::int64_t now_unix) {
  const std::int64_t seconds = now_unix - then_unix;
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  constexpr std::int64_t kDay = 24 * kHour;
  if (seconds < kMinute) return "just now";
  if (seconds < kHour) return fmt::format("{} min ago", seconds / kMinute);
  if (seconds < 2 * kDay) return fmt::format("{} h ago", seconds / kHour);
  return fmt::format("{} days ago", seconds / kDay);
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string indented(std::string_view text, std::string_view prefix) {
  std::string result;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    result += fmt::format("{}{}\n", prefix, line);
  }
  return result;
}

Result<std::string> read_file(const std::string& path) {
  const auto failed = [&] {
    return Status(Code::kIo, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return failed();
  std::string text;
  std::array<char, 65536> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    text.append(buffer.data(), count);
  }
  if (std::ferror(file.get()) != 0) return failed();
  return text;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_error(std::string_view message, std::string_view log) {
  const std::string text = fmt::format("cubinery: {}\n{}", message, indented(log, "    "));
  std::fwrite(text.data(), 1, text.size(), stderr);
}

int usage_error(const Status& error) {
  print_error(error.message(), error.log());
  return kExitUsage;
}

int exit_code_of(const Status& status) {
  if (status.ok()) return kExitOk;
  print_error(status.message(), status.log());
  return kExitFailed;
}

Status write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    print(text);
    return {};
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) written = false;
  if (written) return {};
  return Status(Code::kIo, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

Status write_json(const std::string& path, const nlohmann::ordered_json& document) {
  // Paths may hold any bytes; JSON may not.
  return write_text(
      path, document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace cubinery
