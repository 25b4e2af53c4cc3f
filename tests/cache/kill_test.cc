// Processes that are killed while they publish.
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "cache/store.h"
#include "tests/cache/child.h"
#include "tests/cache/fault_env.h"
#include "tests/cache/sample.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::numbered_entry;

constexpr int kKills = 500;
constexpr int kEntries = 3;
constexpr int kLongestLifeUs = 8000;

// Several pages, so that a file can be cut in the middle.
Entry big_entry(int n) {
  Entry entry = numbered_entry(n);
  entry.cubin.append(20000, static_cast<char>('a' + n));
  return entry;
}

int publish_for_ever(const std::string& dir, int first) {
  Store store({.dir = dir});
  for (int n = first % kEntries;; n = (n + 1) % kEntries) {
    if (!store.publish(big_entry(n))) return 1;
  }
}

TEST_CASE("KilledPublishersLeaveOnlyWholeEntries", "[cache]") {
  const test::TempDir temp;
  const std::string dir = temp.path() + "/cache";
  const auto env = std::make_shared<test::FaultEnv>(posix_env());
  Store store({.dir = dir}, env);
  std::mt19937 random(20240607);
  std::uniform_int_distribution<int> life(0, kLongestLifeUs);
  for (int kill = 0; kill < kKills; ++kill) {
    const pid_t child = test::start_child([&] { return publish_for_ever(dir, kill); });
    REQUIRE(child > 0);
    std::this_thread::sleep_for(std::chrono::microseconds(life(random)));
    test::kill_child(child);
    for (const ListedEntry& entry : store.list()) {
      INFO("kill " << kill << ": " << entry.path);
      REQUIRE(entry.problem == "");
    }
  }
  // Else no child was killed at work, and nothing has been tested.
  const std::size_t temporaries = test::count_files(dir + "/tmp");
  CHECK(temporaries > 0);
  CHECK_FALSE(store.list().empty());

  env->advance_clock(3601);
  const Result<GcResult> swept = store.gc();
  REQUIRE(swept);
  CHECK(swept->temporaries_removed == temporaries);
  CHECK(test::count_files(dir + "/tmp") == 0);
  for (int n = 0; n < kEntries; ++n) {
    REQUIRE(store.publish(big_entry(n)));
    const std::optional<StoredEntry> found = store.lookup(big_entry(n).identity);
    REQUIRE(found);
    CHECK(found->entry == big_entry(n));
  }
}

}  // namespace
}  // namespace cubinery
