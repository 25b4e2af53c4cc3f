// A kernel library in DeepJIT's way, with the one include changed.
#include <cstring>

#include "tests/compat/bench.h"
#define ROW_OPS_ON_CUBINERY
#include "tests/compat/row_ops/row_ops.h"

namespace cubinery::deep_jit_library_test {
namespace {

using test::JitBench;
using test::Variable;

struct Library {
  JitBench bench;
  Variable cache{"ROW_OPS_JIT_CACHE_DIR", bench.dir.path() + "/row_ops"};

  Library() { row_ops::init(CUBINERY_TEST_DIR "/compat/row_ops"); }
};

TEST_CASE("ALibrarysTemplatesAreInstantiatedAndLaunched", "[nvrtc][deep_jit]") {
  Library library;
  const row_ops::Rows rows{.y = nullptr, .x = nullptr, .rows = 7, .cols = 100};
  CUstream const stream = reinterpret_cast<CUstream>(0x40);
  row_ops::scale(rows, 2.0f, stream);
  row_ops::scale({.y = nullptr, .x = nullptr, .rows = 2, .cols = 300}, 2.0f, stream);
  row_ops::scale(rows, 3.0f, stream);
  const auto& launches = library.bench.fake->launches;
  REQUIRE(launches.size() == 3);
  CHECK(launches[0].kernel.find("scaleILi64Ef") != std::string::npos);
  CHECK(launches[1].kernel.find("scaleILi256Ef") != std::string::npos);
  CHECK(launches[0].config.gridDimX == 7);
  CHECK(launches[0].config.blockDimX == 64);
  CHECK(launches[2].kernel == launches[0].kernel);
  CHECK(launches[0].attributes.empty());
  CHECK(test::stats_of(*row_ops::jit.get()).compiles == 2);
  CHECK(test::thrown([&] { row_ops::scale({}, 1.0f, stream); }).find("no rows: 0 x 0") !=
        std::string::npos);
}

TEST_CASE("ALibraryPassesWhatItDoesNotKnow", "[nvrtc][deep_jit]") {
  const Variable pdl("ROW_OPS_PDL", "1");
  Library library;
  row_ops::Pair elsewhere{3, 4.5};
  row_ops::put_pair(nullptr, {1, 2.5}, {&elsewhere}, nullptr);
  const test::FakeLaunch& launch = library.bench.fake->launches.back();
  REQUIRE(launch.arguments.size() == 8 + 16 + 16);
  row_ops::Pair passed{};
  std::memcpy(&passed, &launch.arguments[24], sizeof(passed));
  CHECK(passed.first == 3);
  CHECK(passed.second == 4.5);
  CHECK(launch.attributes.size() == 3);
  CHECK(launch.config.sharedMemBytes == 64);
  CHECK(row_ops::sm_count() == 132);
  CHECK(row_ops::driver_version() == 13000);
}

}  // namespace
}  // namespace cubinery::deep_jit_library_test
