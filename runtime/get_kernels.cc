#include "runtime/get_kernels.h"

#include <pthread.h>

#include <atomic>
#include <optional>

namespace cubinery {
namespace {

// What compilers take for granted; a host program's default can be a small part of it.
constexpr std::size_t kStackBytes = std::size_t{8} << 20;

// Specs that threads take, one after the other.
struct Work {
  const Context& context;
  const std::vector<KernelSpec>& specs;
  std::vector<std::optional<Result<Kernel>>> kernels;  // one for each spec
  std::atomic<std::size_t> next{0};

  void run() {
    for (std::size_t i = next++; i < specs.size(); i = next++) {
      kernels[i].emplace(context.get(specs[i]));
    }
  }
};

void* run_work(void* work) {
  static_cast<Work*>(work)->run();
  return nullptr;
}

}  // namespace

Result<std::vector<Kernel>> get_kernels(const Context& context,
                                        const std::vector<KernelSpec>& specs) {
  Work work{.context = context, .specs = specs, .kernels = {}};
  work.kernels.resize(specs.size());
  // NOTE: not std::thread, which throws where there is no further thread to be had.  This one then
  // does the work alone.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  std::vector<pthread_t> threads;
  for (std::size_t i = 1; i < specs.size(); ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, &attributes, run_work, &work) != 0) break;
    threads.push_back(thread);
  }
  pthread_attr_destroy(&attributes);
  work.run();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);

  std::vector<Kernel> kernels;
  for (std::optional<Result<Kernel>>& kernel : work.kernels) {
    if (!*kernel) return std::move(*kernel).error();
    kernels.push_back(**kernel);
  }
  return kernels;
}

}  // namespace cubinery
