#include "runtime/jit/on_threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace cubinery {
namespace {

// What compilers take for granted; a host program's default can be a small part of it.
constexpr std::size_t kStackBytes = std::size_t{8} << 20;

// What threads take, one after the other.
struct Work {
  std::size_t count;
  const std::function<void(std::size_t)>& work;
  std::atomic<std::size_t> next{0};

  void run() {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  }
};

// The host's callbacks may be called here, and pthread_cancel() would unwind frames of the library.
void refuse_cancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }

void* run_work(void* work) {
  refuse_cancellation();
  static_cast<Work*>(work)->run();
  return nullptr;
}

void* run_once(void* work) {
  refuse_cancellation();
  (*static_cast<const std::function<void()>*>(work))();
  return nullptr;
}

// NOTE: not std::thread, which throws where there is no further thread to be had.
bool start(pthread_t* thread, void* (*run)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const bool started = pthread_create(thread, &attributes, run, argument) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

}  // namespace

void on_threads(std::size_t count, std::size_t threads,
                const std::function<void(std::size_t)>& work) {
  Work shared{.count = count, .work = work};
  std::vector<pthread_t> started;
  for (std::size_t i = 1; i < std::min(threads, count); ++i) {
    pthread_t thread{};
    if (!start(&thread, run_work, &shared)) break;
    started.push_back(thread);
  }
  shared.run();
  for (const pthread_t thread : started) pthread_join(thread, nullptr);
}

void on_large_stack(const std::function<void()>& work) {
  pthread_t thread{};
  std::function<void()> once = work;
  if (start(&thread, run_once, &once)) {
    pthread_join(thread, nullptr);
  } else {
    work();
  }
}

}  // namespace cubinery
