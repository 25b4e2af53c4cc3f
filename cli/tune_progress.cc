#include "cli/tune_progress.h"

#include <fmt/format.h>

namespace cubinery {

std::string describe(const TuneProgress& at) {
  std::string text = fmt::format("{}/{} {}", at.measured, at.candidates, at.what);
  if (at.best_ms > 0) {
    text += fmt::format(" {:.1f} us", at.best_ms * 1e3);
    if (at.default_ms > 0)
      text += fmt::format(" ({:+.1f} %)", (at.best_ms / at.default_ms - 1) * 100);
  }
  text += fmt::format(" {}", at.bucket);
  return at.best.empty() ? text : fmt::format("{}: {}", text, at.best);
}

void TuneProgressLine::start_call(std::size_t space) {
  space_ = space;
  last_.clear();
}

void TuneProgressLine::update(const TuneProgress& at) {
  // What was said last is about the bucket that is finished now.
  std::size_t& done = done_[space_];
  for (; done < at.shapes_done; ++done) progress_.done(last_.empty() ? describe(at) : last_);
  last_ = fmt::format("{} {}", at.op, describe(at));
  progress_.now(describe(at));
}

}  // namespace cubinery
