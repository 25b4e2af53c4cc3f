// Threads that pthread_cancel() ends.
#pragma once

#include <pthread.h>

#include "tests/catch.h"

namespace cubinery::test {

// Runs a body on a thread that is to be cancelled while it is inside; what is behind the body's end
// is never reached.  Requires: the body, or what it calls, cancels its thread.
template <class Body>
void run_cancelled(Body&& body) {
  const auto run = [](void* given) -> void* {
    (*static_cast<Body*>(given))();
    pthread_testcancel();
    return nullptr;
  };
  pthread_t thread;
  REQUIRE(pthread_create(&thread, nullptr, run, &body) == 0);
  void* result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
}

inline void cancel_this_thread() { pthread_cancel(pthread_self()); }

}  // namespace cubinery::test
