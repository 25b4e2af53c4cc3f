#include "cli/interrupt.h"

#include <atomic>

namespace cubinery {
namespace {

// Set by the signal handler, which may touch nothing but a lock-free atomic.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

InterruptNote::InterruptNote() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one ends the process
  sigaction(SIGINT, &action, &before_);
}

InterruptNote::~InterruptNote() { sigaction(SIGINT, &before_, nullptr); }

bool was_interrupted() { return interrupted; }

}  // namespace cubinery
