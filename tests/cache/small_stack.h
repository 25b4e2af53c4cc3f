// Work on a thread whose stack is as small as some hosts' are.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>

namespace cubinery::test {

// Sanitizers take several times as much of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
inline constexpr std::size_t kSmallStack = std::size_t{1} << 20;
#else
inline constexpr std::size_t kSmallStack = std::size_t{64} << 10;
#endif

// False: there was no such thread.  No Catch assertion in `work`: they take more.
inline bool on_small_stack(std::function<void()> work) {
  const auto run = [](void* function) -> void* {
    (*static_cast<std::function<void()>*>(function))();
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_t thread{};
  ::pthread_attr_init(&attributes);
  const bool started = ::pthread_attr_setstacksize(&attributes, kSmallStack) == 0 &&
                       ::pthread_create(&thread, &attributes, run, &work) == 0;
  ::pthread_attr_destroy(&attributes);
  return started && ::pthread_join(thread, nullptr) == 0;
}

}  // namespace cubinery::test
