#include "runtime/jit/recorder.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "cache/env.h"
#include "cache/file_io.h"
#include "codegen/bundle.h"
#include "codegen/read_json.h"
#include "codegen/utf8.h"
#include "runtime/jit/context_state.h"

namespace cubinery {
namespace {

constexpr mode_t kRecordMode = 0600;  // it has people's sources

// As it is where there is no working directory.
std::string absolute_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

// All that a caller wrote, in words that no other text has.
std::string words_of(const KernelSpec& spec) {
  return fmt::format("spec\n{}\n{}\n{}\n{} {} {}", spec.kernel, spec.canonical, spec.initializer,
                     spec.threads, spec.shared_bytes, spec.param_bytes);
}

std::string words_of(const KernelSource& source) {
  std::string words =
      fmt::format("source\n{} {} {} {} {}", source.allow_spills, to_string(source.compiler),
                  source.share_headers, source.options.size(), source.includes.size());
  const auto add = [&words](const std::string& text) { (words += '\0') += text; };
  add(source.name);
  for (const std::string& option : source.options) add(option);
  for (const std::string& folder : source.includes) add(folder);
  add(source.source);
  return words;
}

}  // namespace

Recorder::Recorder(const std::string& path, Log log)
    : path_(absolute_path(path)), log_(std::move(log)) {}

void Recorder::add(const KernelSpec& spec) {
  if (!process_.is_current()) return;
  std::string words = words_of(spec);
  if (!is_new(words)) return;
  if (embedded_digests(spec.kernel) != nullptr) {
    return leave_out(spec.kernel, "it is a kernel of the library, which records problems");
  }
  write(spec.kernel, words, fmt::format("{{\"spec\":{}}}\n", to_json(spec)));
}

void Recorder::add(const KernelSource& source) {
  if (!process_.is_current()) return;
  std::string words = words_of(source);
  if (!is_new(words)) return;
  KernelSource anywhere = source;
  for (std::string& folder : anywhere.includes) folder = absolute_path(folder);
  words = words_of(anywhere);
  write(source.name, words, fmt::format("{{\"source\":{}}}\n", to_json(anywhere)));
}

void Recorder::add_problem(std::string_view op, std::string_view json) {
  if (!process_.is_current()) return;
  json.remove_prefix(1);  // the bracket
  std::string entry = fmt::format("{{\"op\":\"{}\",{}\n", op, json);
  if (is_new(entry)) write(op, entry, entry);
}

bool Recorder::is_new(std::string id) {
  const std::lock_guard lock(mutex_);
  return known_.insert(std::move(id)).second;
}

void Recorder::leave_out(std::string_view name, std::string_view why) const {
  if (log_) log_(LogLevel::kWarning, fmt::format("record: {} is left out: {}", name, why));
}

void Recorder::write(std::string_view name, std::string_view text, std::string_view entry) {
  if (has_failed_) return;
  if (!is_utf8(text)) return leave_out(name, "not all of it is UTF-8");
  if (entry.size() > JsonLimits{}.bytes) {
    return leave_out(name, fmt::format("manifests have at most {} bytes", JsonLimits{}.bytes));
  }
  const std::error_code error = append_line(path_, entry, kRecordMode);
  if (!error || has_failed_.exchange(true) || !log_) return;
  log_(LogLevel::kWarning, fmt::format("record: {}; nothing more is recorded",
                                       io_error("write", path_, error).message()));
}

bool is_recording(const Context& context) { return context.state().recorder != nullptr; }

void record_problem(const Context& context, std::string_view op, std::string_view json) {
  context.state().recorder->add_problem(op, json);
}

}  // namespace cubinery
