#include "results/tuning_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "results/record_file.h"

namespace cubinery {
namespace {

bool is_unchanged(const FileInfo& then, const FileInfo& now) {
  return then.mtime_ns == now.mtime_ns && then.bytes == now.bytes && then.owner == now.owner &&
         then.group == now.group && then.mode == now.mode;
}

std::string text_of(const Wanted& wanted) {
  return fmt::format("{}\n{}\n{}", wanted.op, wanted.problem, fmt::join(wanted.outline, ";"));
}

// What follows `member` ("\"op\":\"") up to a quotation mark; nullopt: not to be had so cheaply.
std::optional<std::string_view> text_after(std::string_view line, std::string_view member) {
  const std::size_t at = line.find(member);
  if (at == line.npos) return std::nullopt;
  line.remove_prefix(at + member.size());
  const std::size_t end = line.find_first_of("\"\\");
  if (end == line.npos || line[end] != '"') return std::nullopt;
  return line.substr(0, end);
}

// The text without lines that are known not to be wanted: parsing is what takes time.  They stay as
// empty lines, so that line numbers are right.
std::string without_others(std::string_view text, const Wanted& wanted) {
  std::string lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto op = text_after(line, "\"op\":\"");
    const auto problem = text_after(line, "\"problem\":\"");
    if (!op || !problem || wanted.includes(*op, *problem)) lines += line;
    lines += '\n';
  }
  return lines;
}

}  // namespace

TuningFiles::Results TuningFiles::parse(std::string_view text, const std::string& path,
                                        const Wanted& wanted, const Log& log) {
  TuningResults parsed = parse_results(without_others(text, wanted), path);
  for (const DamagedLine& line : parsed.damaged) {
    warn_once(fmt::format("tuning: a result is passed over: {}", line.text()), log);
  }
  std::erase_if(parsed.results, [&](const TuningResult& result) {
    return !wanted.includes(result.setting.op, result.setting.problem);
  });
  return std::make_shared<const std::vector<TuningResult>>(std::move(parsed.results));
}

Status TuningFiles::check(const std::string& cache_dir, const Trust& trust) const {
  CUBINERY_RETURN_IF_ERROR(check_owner(*env_, cache_dir, trust));
  return check_owner(*env_, cache_dir + "/tuning", trust);
}

Result<TuningFiles::Parsed> TuningFiles::parse_file(const std::string& path, const Wanted& wanted,
                                                    const Trust& trust, const Log& log) {
  Parsed parsed;
  std::string text;
  const std::error_code error = env_->read(path, &text, &parsed.info);
  if (error && !is_absent(error)) return read_error(path, error);
  if (!error) CUBINERY_RETURN_IF_ERROR(check_owner(*env_, path, parsed.info, trust));
  parsed.results = parse(text, path, wanted, log);
  return parsed;
}

TuningFiles::Results TuningFiles::read(const std::string& cache_dir, const Wanted& wanted,
                                       const Trust& trust, const Log& log) {
  const auto none = [] { return std::make_shared<const std::vector<TuningResult>>(); };
  const Status trusted = check(cache_dir, trust);
  if (!trusted.ok()) {
    warn_once(fmt::format("tuning: no results are read from {}: {}", cache_dir, trusted.message()),
              log);
    return none();
  }
  const std::string path = results_path(cache_dir + "/tuning", wanted.op);
  FileInfo info;
  if (is_absent(env_->stat(path, &info))) return none();
  const Name name{path, text_of(wanted)};
  {
    const std::lock_guard lock(mutex_);
    const auto found = parsed_.find(name);
    if (found != parsed_.end() && is_unchanged(found->second.info, info)) {
      return found->second.results;
    }
  }
  // Two threads may parse one file at once: the same results twice.
  Result<Parsed> parsed = parse_file(path, wanted, trust, log);
  if (!parsed) {
    warn_once(fmt::format("tuning: {}", parsed.error().message()), log);
    return none();
  }
  const std::lock_guard lock(mutex_);
  return (parsed_[name] = *std::move(parsed)).results;
}

void TuningFiles::warn_once(const std::string& text, const Log& log) {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(text).second) return;
  }
  if (log) log(LogLevel::kWarning, text);
}

}  // namespace cubinery
