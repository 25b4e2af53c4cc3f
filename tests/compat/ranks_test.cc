// Processes that start at once, as ranks do, on one cache that is empty.
#include <array>

#include "tests/cache/child.h"
#include "tests/compat/bench.h"

namespace cubinery::deep_jit_ranks_test {
namespace {

using test::JitBench;

constexpr int kRanks = 8;
const std::array<std::string, 3> kSources = {
    "__global__ void first(int* x) { *x = 1; }", "__global__ void second(int* x) { *x = 2; }",
    "#include <own/third.cuh>\n__global__ void third(int* x) { *x = kThird; }"};

// What a rank counts, sent through a pipe.
struct Counts {
  std::uint64_t compiles = 0;
  std::uint64_t disk_hits = 0;
  std::uint64_t warnings = 0;
};

TEST_CASE("EightColdProcessesCompileEachKernelOnce", "[nvrtc][deep_jit]") {
  JitBench bench;
  const std::string folder = bench.write("include", "own/third.cuh", "constexpr int kThird = 3;\n");
  std::array<int, 2> results{};
  std::array<int, 2> start{};
  REQUIRE(::pipe(results.data()) == 0);
  REQUIRE(::pipe(start.data()) == 0);
  std::vector<pid_t> ranks;
  ranks.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(test::start_child([&] {
      ::close(start[1]);
      const auto jit = bench.runtime("", {folder});
      char byte = 0;
      if (::read(start[0], &byte, 1) != 0) return 1;  // until the parent closes it
      for (std::size_t i = 0; i < kSources.size(); ++i) {
        const auto kernel =
            jit->compile("kernel", kSources[(i + static_cast<std::size_t>(rank)) % 3]);
        int* const x = nullptr;
        jit->launch(kernel, {.grid_dim = dim3(1), .block_dim = dim3(1)}, x);
      }
      const CacheStats stats = test::stats_of(*jit);
      const Counts counts{stats.compiles, stats.disk_hits, stats.failed_writes + stats.damaged};
      return ::write(results[1], &counts, sizeof(counts)) == sizeof(counts) ? 0 : 2;
    }));
  }
  ::close(start[0]);
  ::close(start[1]);
  for (const pid_t rank : ranks) CHECK(test::wait_for(rank) == 0);
  Counts sum;
  for (int rank = 0; rank < kRanks; ++rank) {
    Counts counts;
    REQUIRE(::read(results[0], &counts, sizeof(counts)) == sizeof(counts));
    sum.compiles += counts.compiles;
    sum.disk_hits += counts.disk_hits;
    sum.warnings += counts.warnings;
  }
  CHECK(sum.compiles == kSources.size());
  CHECK(sum.disk_hits == (kRanks - 1) * kSources.size());
  CHECK(sum.warnings == 0);
  CHECK(test::count_files(bench.dir.path() + "/cache/entries") == kSources.size());
  ::close(results[0]);
  ::close(results[1]);
}

}  // namespace
}  // namespace cubinery::deep_jit_ranks_test
