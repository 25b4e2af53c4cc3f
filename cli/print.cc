#include "cli/print.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

namespace cubinery {
namespace {

// Of the first write to stdout that failed; 0: none.
int stdout_errno = 0;

Status cannot_write(std::string_view what, int error) {
  return Status(Code::kIo, fmt::format("cannot write {}: {}", what, std::strerror(error)));
}

// Where a file goes.
struct OutputPlace {
  std::string path;         // behind symbolic links
  bool is_special = false;  // a terminal, a pipe, /dev/null: written in place, never replaced
  bool is_directory = false;
  mode_t mode = 0;          // of the file that is there; 0: none is
  std::string temporary{};  // beside it, of this process
};

OutputPlace place_of(const std::string& path) {
  OutputPlace place{.path = path};
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (real) place.path = real.get();
  struct stat found {};
  if (stat(path.c_str(), &found) == 0) {
    place.is_special = !S_ISREG(found.st_mode) || path.starts_with("/dev/");
    place.is_directory = S_ISDIR(found.st_mode);
    place.mode = found.st_mode & ACCESSPERMS;
  }
  place.temporary = fmt::format("{}.{}.tmp", place.path, getpid());
  return place;
}

// The descriptor, or -1 with errno.
int open_new(const std::string& path) {
  constexpr mode_t kMode = 0666;  // less the umask
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
}

// False: errno says why.
bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
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

void print(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if ((std::fflush(stdout) != 0 || !written) && stdout_errno == 0) stdout_errno = errno;
}

Status output_error() {
  const int error = std::exchange(stdout_errno, 0);
  return error == 0 ? Status() : cannot_write("stdout", error);
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
  if (status.code() == Code::kInvalidArgument) return usage_error(status);
  print_error(status.message(), status.log());
  return kExitFailed;
}

Status check_output(const std::string& path) {
  if (path.empty() || path == "-") return {};
  const OutputPlace place = place_of(path);
  if (place.is_directory) return cannot_write(path, EISDIR);
  if (place.is_special) {
    return access(path.c_str(), W_OK) == 0 ? Status() : cannot_write(path, errno);
  }
  const int file = open_new(place.temporary);
  if (file < 0) return cannot_write(path, errno);
  close(file);
  unlink(place.temporary.c_str());
  return {};
}

Status write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    print(text);
    return output_error();
  }
  const OutputPlace place = place_of(path);
  const int file = place.is_special ? open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC)
                                    : open_new(place.temporary);
  if (file < 0) return cannot_write(path, errno);
  int error = write_all(file, text) ? 0 : errno;
  if (!place.is_special && place.mode != 0 && error == 0 && fchmod(file, place.mode) != 0) {
    error = errno;
  }
  if (!place.is_special && error == 0 && fsync(file) != 0) error = errno;
  if (close(file) != 0 && error == 0) error = errno;
  if (place.is_special) return error == 0 ? Status() : cannot_write(path, error);
  if (error == 0 && rename(place.temporary.c_str(), place.path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  unlink(place.temporary.c_str());
  return cannot_write(path, error);
}

Status write_json(const std::string& path, const nlohmann::ordered_json& document) {
  // Paths may hold any bytes; JSON may not.
  return write_text(
      path, document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace cubinery
