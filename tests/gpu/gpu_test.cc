#include "tests/gpu/gpu_test.h"

#include <thread>

#include <cstdlib>
#include <set>
#include <stdexcept>

namespace cubinery::test {
namespace {

const Gpu* the_gpu = nullptr;
std::set<std::string> skipped;

}  // namespace

std::string test_name() { return Catch::getResultCapture().getCurrentTestName(); }

const Gpu& gpu() { return *the_gpu; }

void set_gpu(const Gpu* gpu) { the_gpu = gpu; }

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("CUBINERY_TEST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : 20261121ull;
  }();
  return value;
}

void skip_test(const std::string& why) {
  WARN("skipped: " << why);
  skipped.insert(test_name());
}

int skipped_tests() { return static_cast<int>(skipped.size()); }

std::vector<int> failures_in_threads(int threads, int times,
                                     const std::function<bool(std::size_t)>& run) {
  std::vector<int> failures(static_cast<std::size_t>(threads));
  {
    std::vector<std::jthread> running;
    for (std::size_t t = 0; t < failures.size(); ++t) {
      running.emplace_back([&, t] {
        for (int i = 0; i < times; ++i) failures[t] += run(t) ? 0 : 1;
      });
    }
  }
  gpu().synchronize();
  return failures;
}

void fail_to_prepare(const std::string& problem, const Status& error) {
  throw std::runtime_error("problem " + problem + "\n" + to_string(error.code()) + ": " +
                           std::string(error.message()) + "\n" + std::string(error.log()));
}

}  // namespace cubinery::test
