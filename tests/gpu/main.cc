// Runs the GPU tests, or says why it cannot and returns kSkipped, which ctest counts as skipped.
//
//   CUBINERY_TEST_CACHE  a cache directory to use and keep (default: a temporary one)
//   CUBINERY_TEST_PACK   a pack or directory of kernels below it
//   CUBINERY_TEST_SEED   the seed of all random data
//   CUBINERY_TEST_FULL   set: sweeps run all that they have, not a cover of pairs of it
//   CUBINERY_TEST_JSON   a file to write {"passed":..,"failed":..,"skipped":..} to, in test cases
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // listeners
#endif
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "cubinery/options.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/gpu/device.h"
#include "tests/gpu/gpu_test.h"
#include "tests/runner.h"

namespace {

using cubinery::test::Gpu;

constexpr int kSkipped = 77;  // ctest: SKIP_RETURN_CODE

void write_totals(unsigned long long passed, unsigned long long failed,
                  unsigned long long skipped) {
  const char* path = std::getenv("CUBINERY_TEST_JSON");
  std::FILE* file = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (file == nullptr) return;
  std::fprintf(file, "{\"passed\":%llu,\"failed\":%llu,\"skipped\":%llu}\n", passed, failed,
               skipped);
  std::fclose(file);
}

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

class TotalsWriter : public Listener {
 public:
  using Listener::Listener;
  void testRunEnded(const Catch::TestRunStats& stats) override {
    const auto skipped = static_cast<unsigned long long>(cubinery::test::skipped_tests());
    const Catch::Counts& cases = stats.totals.testCases;
    // A skipped case has passed as far as Catch knows.
    write_totals(cases.passed > skipped ? cases.passed - skipped : 0, cases.failed, skipped);
  }
};
CATCH_REGISTER_LISTENER(TotalsWriter)

bool only_lists(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--list", 6) == 0) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (only_lists(argc, argv)) return cubinery::test::run_tests(argc, argv);
  std::optional<cubinery::test::TempDir> directory;
  cubinery::Options options = cubinery::Options::from_env().value();
  options.cache_layers.clear();
  if (const char* pack = std::getenv("CUBINERY_TEST_PACK")) options.cache_layers.push_back(pack);
  if (const char* cache = std::getenv("CUBINERY_TEST_CACHE")) {
    options.cache_dir = cache;
  } else {
    options.cache_dir = directory.emplace().path();
  }
  const cubinery::Result<std::unique_ptr<const Gpu>> gpu = Gpu::open(options);
  if (!gpu) {
    std::printf("skipped: no usable GPU: %s\n", std::string(gpu.error().message()).c_str());
    write_totals(0, 0, 1);
    return kSkipped;
  }
  cubinery::test::set_gpu(gpu->get());
  std::printf("device %s, %s; seed %llu (CUBINERY_TEST_SEED)\n", (*gpu)->name().c_str(),
              (*gpu)->context().arch().c_str(),
              static_cast<unsigned long long>(cubinery::test::seed()));
  return cubinery::test::run_tests(argc, argv);
}
