// SIGINT for commands that take long: the first one is noted, a second one ends the process.
#pragma once

#include <signal.h>

namespace cubinery {

// Notes SIGINT while it lives; one at a time.
class InterruptNote {
 public:
  InterruptNote();
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

 private:
  struct sigaction before_ {};
};

// Whether one was noted since the process began.  Safe to call from any thread.
bool was_interrupted();

}  // namespace cubinery
