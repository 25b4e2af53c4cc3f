// What goes with every system call.
#pragma once

#include <cerrno>
#include <system_error>

namespace cubinery {

inline std::error_code error_of(int number) { return {number, std::generic_category()}; }

inline std::error_code last_error() { return error_of(errno); }

// Of a call that returns -1 when it fails.
inline std::error_code call_error(int result) { return result == -1 ? last_error() : error_of(0); }

// Repeats a call that a signal interrupts.
template <class Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

// A network file system's answer of a file that another machine has replaced or removed since this
// one learnt of it.
inline bool is_stale(std::error_code error) { return error == error_of(ESTALE); }

// Repeats an operation that meets such a file.  It must begin with the path, of which the system
// then asks anew: what is open stays stale.
template <class Operation>
std::error_code retry_stale(Operation operation) {
  constexpr int kAttempts = 3;
  std::error_code error;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    error = operation();
    if (!is_stale(error)) break;
  }
  return error;
}

}  // namespace cubinery
