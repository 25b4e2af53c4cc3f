// How far a long command is, on stderr.
#pragma once

#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace cubinery {

// A bar that redraws itself on a terminal; one line per finished item elsewhere.  Safe to use from
// any thread.
class Progress {
 public:
  // `out` stays open.  Requires: total > 0.
  Progress(std::FILE* out, bool is_terminal, std::size_t total);
  // Wipes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // One more item is done; `what` describes it.
  void done(std::string_view what);
  // What the next item is about, while it takes long; nothing elsewhere than on a terminal.
  void now(std::string_view what);

 private:
  void draw(std::string_view what);
  void write(const std::string& text);

  std::FILE* const out_;
  const bool is_terminal_;
  const std::size_t total_;
  std::mutex mutex_;
  std::size_t done_ = 0;  // guarded by mutex_
};

// "[#####.....]", `width` characters between the brackets.
std::string progress_bar(std::size_t done, std::size_t total, std::size_t width);

}  // namespace cubinery
