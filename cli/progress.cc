#include "cli/progress.h"

#include <fmt/format.h>

#include "cli/print.h"

namespace cubinery {
namespace {

constexpr const char* kWipe = "\r\x1b[K";
constexpr std::size_t kBarWidth = 24;
// Bar, counts and text must fit a line of 80 columns, or the terminal wraps it and wiping fails.
constexpr std::size_t kTextWidth = 40;

}  // namespace

std::string progress_bar(std::size_t done, std::size_t total, std::size_t width) {
  const std::size_t filled = total == 0 ? width : width * done / total;
  return fmt::format("[{:#>{}}{:.>{}}]", "", filled, "", width - filled);
}

Progress::Progress(std::FILE* out, bool is_terminal, std::size_t total)
    : out_(out), is_terminal_(is_terminal), total_(total) {
  if (is_terminal_) write(fmt::format("{} 0/{}", progress_bar(0, total_, kBarWidth), total_));
}

Progress::~Progress() {
  if (is_terminal_) write(kWipe);
}

void Progress::done(std::string_view what) {
  const std::lock_guard lock(mutex_);
  ++done_;
  if (is_terminal_) {
    draw(what);
  } else {
    write(fmt::format("[{}/{}] {}\n", done_, total_, visible(what)));
  }
}

void Progress::now(std::string_view what) {
  const std::lock_guard lock(mutex_);
  if (is_terminal_) draw(what);
}

void Progress::draw(std::string_view what) {
  write(fmt::format("{}{} {}/{} {}", kWipe, progress_bar(done_, total_, kBarWidth), done_, total_,
                    visible(what).substr(0, kTextWidth)));
}

void Progress::write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

}  // namespace cubinery
