// Outcomes on their way through the C ABI: a code for the caller, the message for
// cubinery_last_error().
#pragma once

#include <exception>

#include "cubinery/status.h"

namespace cubinery::capi {

// The status's code; an error becomes this thread's last one.
int report(Status status) noexcept;
// CUBINERY_INTERNAL with this message, cut to a fixed length: it may be memory that has run out.
int report_internal(const char* message) noexcept;

// Runs the body of a C function, which returns a Status; nothing that it throws gets out.
template <class Body>
int guarded(Body&& body) noexcept {
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

}  // namespace cubinery::capi
