#include "cli/print.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "cache/system_call.h"
#include "codegen/nearest.h"
#include "codegen/utf8.h"

namespace cubinery {
namespace {

// Of the first write to stdout that failed; 0: none.
int stdout_errno = 0;

constexpr std::uint32_t kNewFileMode = 0666;  // less the umask

// Where a file goes.
struct OutputPlace {
  std::string path;         // behind symbolic links
  bool is_special = false;  // a terminal, a pipe, /dev/null: written in place, never replaced
  bool is_directory = false;
  mode_t mode = 0;          // of the file that is there; 0: none is
  bool is_foreign = false;  // behind a symbolic link that another user could have laid
  std::string temporary{};  // beside it, of this process
};

// Whether the path is a link in a directory like /tmp of neither this user nor the directory's
// owner: what Linux refuses to follow (fs.protected_symlinks), and realpath() does not.
bool is_foreign_link(const std::string& path) {
  struct stat link {};
  struct stat directory {};
  const std::size_t slash = path.find_last_of('/');
  const std::string parent = slash == path.npos ? "." : path.substr(0, slash + 1);
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  return lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode) && link.st_uid != geteuid() &&
         stat(parent.c_str(), &directory) == 0 && (directory.st_mode & kShared) == kShared &&
         directory.st_uid != link.st_uid;
}

OutputPlace place_of(const std::string& path) {
  OutputPlace place{.path = path, .is_foreign = is_foreign_link(path)};
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

// A device or a pipe: the error, or none.
std::error_code write_in_place(const std::string& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return error_of(errno);
  int error = std::fwrite(text.data(), 1, text.size(), file) == text.size() ? 0 : errno;
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return error_of(error);
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

std::string duration_text(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 100 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
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

std::string visible(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(1, length));
    const auto byte = static_cast<unsigned char>(character.back());
    const bool is_plain = character == "\n" || character == "\t";
    const bool is_control = character.size() == 1
                                ? byte < 0x20 || byte == 0x7f || length == 0
                                : character.starts_with("\xc2") && byte < 0xa0;  // C1
    if (is_control && !is_plain) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

void print(std::string_view any_text) {
  const std::string text = visible(any_text);
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if ((std::fflush(stdout) != 0 || !written) && stdout_errno == 0) stdout_errno = errno;
}

Status output_error() {
  const int error = std::exchange(stdout_errno, 0);
  return error == 0 ? Status() : io_error("write", "stdout", error_of(error));
}

void print_error(std::string_view message, std::string_view log) {
  const std::string text = visible(fmt::format("cubinery: {}\n{}", message, indented(log, "    ")));
  std::fwrite(text.data(), 1, text.size(), stderr);
}

Status unknown_name(std::string_view option, std::string_view value,
                    const std::vector<std::string>& known, std::string_view besides) {
  return Status(Code::kInvalidArgument,
                fmt::format("{} {}; accepted: {}{}{}{}", option, value, join(known),
                            known.empty() || besides.empty() ? "" : ", ", besides,
                            did_you_mean(value, known)));
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
  std::error_code error;
  if (place.is_foreign) {
    error = error_of(EACCES);
  } else if (place.is_directory) {
    error = error_of(EISDIR);
  } else if (place.is_special) {
    if (access(path.c_str(), W_OK) != 0) error = error_of(errno);
  } else {
    const std::shared_ptr<Env> env = posix_env();
    error = env->write_synced(place.temporary, "", kNewFileMode);
    if (!error) (void)env->remove(place.temporary);
  }
  return error ? io_error("write", path, error) : Status();
}

Status write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    print(text);
    return output_error();
  }
  const OutputPlace place = place_of(path);
  if (place.is_foreign) return io_error("write", path, error_of(EACCES));
  const auto keep_mode = [&] {
    const bool kept = place.mode == 0 || chmod(place.temporary.c_str(), place.mode) == 0;
    return error_of(kept ? 0 : errno);
  };
  const Replacement file{
      .path = place.path, .temporary = place.temporary, .mode = kNewFileMode, .finish = keep_mode};
  const std::error_code error =
      place.is_special ? write_in_place(path, text) : replace_file(*posix_env(), file, text);
  return error ? io_error("write", path, error) : Status();
}

Status write_json(const std::string& path, const nlohmann::ordered_json& document) {
  // Paths may hold any bytes; JSON may not, and a terminal gets no control character (visible()
  // would write what JSON has no escape for).
  const bool is_ascii = path == "-";
  return write_text(
      path,
      document.dump(2, ' ', is_ascii, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace cubinery
