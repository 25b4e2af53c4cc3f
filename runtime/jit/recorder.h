// What a context was asked for, written down for `cubinery prewarm --manifest`.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "cubinery/context.h"
#include "runtime/jit/owner_process.h"

namespace cubinery {

// Adds an entry to a file, a line of JSON, for each thing that it is told of for the first time.
// Other processes may do so at the same time.  What goes wrong is one warning, after which nothing
// is written.  Thread-safe; does nothing in a forked child.
class Recorder {
 public:
  using Log = std::function<void(LogLevel, std::string_view)>;

  // Where the file is is decided now; it is made when there is something to write.
  Recorder(const std::string& path, Log log);

  // Of the library's kernels a specification is not enough: their problems are recorded.
  void add(const KernelSpec& spec);
  // Its include folders become absolute paths.
  void add(const KernelSource& source);
  // `json`: the problem's to_json().
  void add_problem(std::string_view op, std::string_view json);

 private:
  bool is_new(std::string id);
  // `text`: of the caller's, for which JSON may have no words.
  void write(std::string_view name, std::string_view text, std::string_view entry);
  void leave_out(std::string_view name, std::string_view why) const;

  const OwnerProcess process_{};
  const std::string path_;
  const Log log_;
  std::atomic<bool> has_failed_{false};
  std::mutex mutex_;
  std::unordered_set<std::string> known_;  // guarded by mutex_
};

// Whether it was right to ask, whatever came of it here: elsewhere, or with a fuller cache, it can
// be had.
template <class T>
bool can_be_had(const Result<T>& made) {
  if (made) return true;
  const Code code = made.error().code();
  return code == Code::kNotCached || code == Code::kUnsupported || code == Code::kDriver;
}

// Whether the context has a recorder, and what adds to it.
bool is_recording(const Context& context);
void record_problem(const Context& context, std::string_view op, std::string_view json);

}  // namespace cubinery
