// What goes with every system call.
#pragma once

#include <cerrno>
#include <system_error>

namespace cubinery {

inline std::error_code last_error() { return {errno, std::generic_category()}; }

// Repeats a call that a signal interrupts.
template <class Call>
auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace cubinery
