#include "results/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "cache/env.h"
#include "cache/file_io.h"
#include "cache/file_lock.h"
#include "cache/lock.h"
#include "cache/paths.h"
#include "cache/system_call.h"

namespace cubinery {
namespace {

constexpr std::string_view kMeasurementsSuffix = ".measurements.jsonl";
constexpr std::string_view kResultsSuffix = ".results.jsonl";

// Why a line of neither kind that the file is for was passed over.  A whole record of another kind
// is no damage: files may be joined.
void pass_over(std::string_view line, DamagedLine damage, std::vector<DamagedLine>* damaged) {
  switch (kind_of(line)) {
    case RecordKind::kSetting:
    case RecordKind::kMeasurement:
    case RecordKind::kResult:
      return;
    case RecordKind::kOther:
      damage.what = "no record that this version knows";
      damaged->push_back(std::move(damage));
  }
}

// Puts a record in the place of an earlier one of the same name, or at the end.
template <class Record>
void put(const std::string& name, Record record, std::map<std::string, std::size_t>* places,
         std::vector<Record>* records) {
  const auto [place, is_new] = places->emplace(name, records->size());
  if (is_new) {
    records->push_back(std::move(record));
  } else {
    (*records)[place->second] = std::move(record);
  }
}

std::string message_of(const Status& status) { return std::string(status.message()); }

// The file's bytes; empty for one that is absent.
Result<std::string> read_text(const std::string& path, const Trust& trust) {
  const std::shared_ptr<Env> env = posix_env();
  std::string text;
  FileInfo info;
  const std::error_code error = env->read(path, &text, &info);
  if (is_absent(error)) return std::string();
  if (error) return read_error(path, error);
  CUBINERY_RETURN_IF_ERROR(check_owner(*env, path, info, trust));
  return text;
}

// A file that is appended to.
class Appender {
 public:
  explicit Appender(const std::string& path) : path_(path) {}

  // OK: it is open, and a file to append to.
  Status open(Env& env, const Trust& trust) {
    struct ::stat status {};
    const char* what = "open";
    const std::error_code error = retry_stale([&] {
      what = "open";
      file_ = open_file(path_, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0644);
      if (!file_.ok()) return last_error();
      what = "examine";
      return call_error(::fstat(file_.get(), &status));
    });
    if (error == std::errc::too_many_symbolic_link_levels) {
      return Status(Code::kIo, fmt::format("cannot append to {}: it is a symbolic link; accepted: "
                                           "a regular file",
                                           path_));
    }
    if (error) return io_error(what, path_, error);
    if (!S_ISREG(status.st_mode)) {
      return io_error("append to", path_, std::make_error_code(std::errc::invalid_argument));
    }
    return check_owner(
        env, path_,
        {.owner = status.st_uid, .group = status.st_gid, .mode = status.st_mode & 07777u}, trust);
  }

  // `made`: nothing had been written to it.  Requires: open().ok().
  std::error_code append(Env& env, std::string_view lines, std::chrono::milliseconds lock_wait,
                         bool* made) const {
    // Only to see no half of another process's write as a cut line: without a lock, because there
    // are none or because its holder was stopped, nothing is lost.
    std::unique_ptr<HeldLock> held;
    (void)poll_lock(env, lock_wait, [&] { return try_lock_open(file_.get(), &held); });
    struct ::stat status {};
    if (::fstat(file_.get(), &status) != 0) return last_error();
    *made = status.st_size == 0;
    std::string bytes(*made || ends_line(status.st_size) ? "" : "\n");
    bytes += lines;
    if (const std::error_code error = write_all(file_.get(), bytes)) return error;
    held.reset();
    return sync_file(file_.get());
  }

 private:
  bool ends_line(off_t size) const {
    char last = 0;
    return uninterrupted([&] { return ::pread(file_.get(), &last, 1, size - 1); }) == 1 &&
           last == '\n';
  }

  const std::string path_;
  Descriptor file_;
};

}  // namespace

std::string DamagedLine::text() const { return fmt::format("{}:{}: {}", path, line, what); }

std::string measurements_path(const std::string& directory, std::string_view op) {
  return fmt::format("{}/{}{}", directory, op, kMeasurementsSuffix);
}

std::string results_path(const std::string& directory, std::string_view op) {
  return fmt::format("{}/{}{}", directory, op, kResultsSuffix);
}

Result<std::vector<std::string>> tuned_operators(const std::string& directory) {
  std::vector<DirEntry> files;
  const std::error_code error = posix_env()->list(directory, &files);
  if (error && !is_absent(error)) return io_error("list", directory, error);
  std::set<std::string> names;
  for (const DirEntry& file : files) {
    for (const std::string_view suffix : {kMeasurementsSuffix, kResultsSuffix}) {
      if (!file.name.ends_with(suffix)) continue;
      std::string name = file.name.substr(0, file.name.size() - suffix.size());
      if (paths::is_kernel_name(name)) names.insert(std::move(name));
    }
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Measurements parse_measurements(std::string_view text, const std::string& path) {
  Measurements read;
  // A setting may stand behind its measurements: files may be joined in any order.
  std::vector<std::pair<int, Measurement>> found;
  for_each_line(text, [&](std::string_view line, int number) {
    DamagedLine damage{path, number, {}};
    if (kind_of(line) == RecordKind::kSetting) {
      Result<Setting> setting = parse_setting(line);
      if (setting) {
        std::string id = id_of(*setting);
        read.settings.insert_or_assign(std::move(id), *std::move(setting));
        return;
      }
      damage.what = message_of(setting.error());
    } else if (kind_of(line) == RecordKind::kMeasurement) {
      Result<Measurement> measurement = parse_measurement(line);
      if (measurement) return (void)found.emplace_back(number, *std::move(measurement));
      damage.what = message_of(measurement.error());
    } else {
      return pass_over(line, std::move(damage), &read.damaged);
    }
    read.damaged.push_back(std::move(damage));
  });
  std::map<std::string, std::size_t> places;
  for (auto& [number, measurement] : found) {
    if (!read.settings.contains(measurement.setting)) {
      read.damaged.push_back({path, number, "names a setting that the file does not have"});
      continue;
    }
    const std::string name = measurement.setting + ' ' + to_text(measurement.configuration);
    put(name, std::move(measurement), &places, &read.measurements);
  }
  std::sort(read.damaged.begin(), read.damaged.end(),
            [](const DamagedLine& a, const DamagedLine& b) { return a.line < b.line; });
  return read;
}

TuningResults parse_results(std::string_view text, const std::string& path) {
  TuningResults read;
  std::map<std::string, std::size_t> places;
  for_each_line(text, [&](std::string_view line, int number) {
    DamagedLine damage{path, number, {}};
    if (kind_of(line) != RecordKind::kResult) {
      return pass_over(line, std::move(damage), &read.damaged);
    }
    Result<TuningResult> result = parse_result(line);
    if (result) {
      const std::string id = id_of(result->setting);
      return put(id, *std::move(result), &places, &read.results);
    }
    damage.what = message_of(result.error());
    read.damaged.push_back(std::move(damage));
  });
  return read;
}

Result<Measurements> read_measurements(const std::string& path, const Trust& trust) {
  const Result<std::string> text = read_text(path, trust);
  if (!text) return text.error().clone();
  return parse_measurements(*text, path);
}

Result<TuningResults> read_results(const std::string& path, const Trust& trust) {
  const Result<std::string> text = read_text(path, trust);
  if (!text) return text.error().clone();
  return parse_results(*text, path);
}

Status append_lines(const std::string& path, std::string_view lines, const Trust& trust,
                    std::chrono::milliseconds lock_wait) {
  const std::shared_ptr<Env> env = posix_env();
  const std::string directory = paths::parent(path);
  if (const std::error_code error = make_dirs(*env, directory, trust)) {
    return io_error("make the directory", directory, error);
  }
  Appender file(path);
  CUBINERY_RETURN_IF_ERROR(file.open(*env, trust));
  bool made = false;
  std::error_code failed = file.append(*env, lines, lock_wait, &made);
  if (is_stale(failed)) {
    // On a network file system another machine has put another file in its place.  What was to be
    // appended to the old one is gone with it.
    CUBINERY_RETURN_IF_ERROR(file.open(*env, trust));
    failed = file.append(*env, lines, lock_wait, &made);
  }
  if (failed) return io_error("append to", path, failed);
  if (made) share_made(*env, path, 0664, trust);
  // The name of a new file has to reach the disk too.
  const std::error_code error = made ? env->sync_dir(directory) : std::error_code();
  return error ? io_error("sync", directory, error) : Status();
}

}  // namespace cubinery
