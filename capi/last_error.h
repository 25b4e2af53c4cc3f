// Outcomes on their way through the C ABI: a code for the caller, the message for
// cubinery_last_error().
#pragma once

#include <pthread.h>

#include <exception>

#include "cubinery/status.h"

namespace cubinery::capi {

// The status's code; an error becomes this thread's last one.
int report(Status status) noexcept;
// CUBINERY_INTERNAL with this message, cut to a fixed length: it may be memory that has run out.
int report_internal(const char* message) noexcept;

// pthread_cancel() unwinds a thread from where it waits for a file, which the library's frames do
// not bear: it waits until this is gone.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;
  ~Uncancelled() {
    int disabled = 0;
    pthread_setcancelstate(before_, &disabled);
  }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Runs the body of a C function, which returns a Status; nothing that it throws gets out.
template <class Body>
int reported(Body&& body) noexcept {
#if defined(__cpp_exceptions)
  try {
    return report(body());
  } catch (const std::exception& error) {
    return report_internal(error.what());
  } catch (...) {
    return report_internal("an exception of unknown type");
  }
#else
  return report(body());
#endif
}

// reported() of a function that may wait for files, locks or a compiler.
template <class Body>
int guarded(Body&& body) noexcept {
  const Uncancelled here;
  return reported(body);
}

// What a function that destroys does.
template <class T>
void destroy(T* handle) noexcept {
  const Uncancelled here;
  delete handle;
}

}  // namespace cubinery::capi
