// Processes that are killed at any of their system calls.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/pack.h"
#include "cache/store.h"
#include "tests/cache/child.h"
#include "tests/cache/fault_env.h"
#include "tests/cache/sample.h"
#include "tests/cache/system_calls.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::kill_test {
namespace {

using test::numbered_entry;
using test::SystemCalls;

constexpr int kEntries = 4;

// Several pages, so that a file can be cut in the middle.
Entry big_entry(int n) {
  Entry entry = numbered_entry(n);
  entry.cubin.append(9000, static_cast<char>('a' + n));
  return entry;
}

bool all(const Identity&) { return true; }

struct Victims {
  const test::TempDir temp;
  const std::string dir = temp.path() + "/cache";
  const std::string pack = temp.path() + "/pack";          // exported
  const std::string incoming = temp.path() + "/incoming";  // imported
  const std::shared_ptr<test::FaultEnv> env = std::make_shared<test::FaultEnv>(posix_env());
  Store store{{.dir = dir, .lock_wait = std::chrono::milliseconds(0)}, env};

  Victims() {
    Store source({.dir = temp.path() + "/source"});
    for (int n = 0; n < 2; ++n) REQUIRE(source.publish(big_entry(n)));
    REQUIRE(source.export_pack(incoming, all, nullptr));
  }

  // In a child: everything that a process does to a cache, killed at the system call of that
  // number. 0: it got to the end.
  int work(int round, int kill_at) const {
    const SystemCalls calls(kill_at, SystemCalls::kKill);
    Store mine({.dir = dir, .layers = {pack}});
    const Entry entry = big_entry(2 + round % 2);
    const std::unique_ptr<MakeLock> lock = mine.lock(entry.identity);
    (void)mine.lookup(entry.identity);
    if (!mine.publish(entry)) return 1;
    if (!mine.import_pack(incoming, nullptr)) return 2;
    if (!mine.export_pack(pack, all, nullptr)) return 3;
    if (round % 3 == 0 && !mine.gc(20000)) return 4;
    return 0;
  }

  // How often a file that no reader looks at was left behind.
  std::size_t leftovers() const {
    std::size_t packs = 0;
    for (const auto& file : std::filesystem::directory_iterator(temp.path())) {
      packs += file.path().extension() == ".tmp" ? 1 : 0;
    }
    return packs + test::count_files(dir + "/tmp");
  }

  void clear() {
    const std::size_t in_cache = test::count_files(dir + "/tmp");
    const std::size_t locks = test::count_files(dir + "/locks");
    env->advance_clock(3601);
    const Result<GcResult> swept = store.gc();
    REQUIRE(swept);
    CHECK(swept->temporaries_removed == in_cache + locks);
    CHECK(test::count_files(dir + "/tmp") == 0);
    CHECK(test::count_files(dir + "/locks") == 0);
    for (const auto& file : std::filesystem::directory_iterator(temp.path())) {
      if (file.path().extension() == ".tmp") std::filesystem::remove(file.path());
    }
  }

  // Nothing is damaged, and nobody waits for the dead.
  std::string trouble() {
    for (const ListedEntry& entry : test::list_all(store)) {
      if (!entry.problem.empty()) return entry.path + ": " + entry.problem;
    }
    if (std::filesystem::exists(pack)) {
      const PackFile file = open_pack(*env, pack);
      if (!file.pack) return "pack: " + file.trouble;
      for (const Pack::Record& record : file.pack->records()) {
        const EntryFile entry = file.pack->read(record);
        if (!entry.entry) return "pack: " + entry.trouble;
      }
    }
    for (const int n : {2, 3}) {
      if (!store.lock(big_entry(n).identity)) return "the lock is held";
    }
    return "";
  }
};

// At each system call in turn, again and again.
void kill_processes(int wanted) {
  Victims victims;
  std::size_t leftovers = 0;
  int kills = 0;
  for (int round = 0; kills < wanted; ++round) {
    int at = 0;
    for (;; ++at) {
      const pid_t child = test::start_child([&] { return victims.work(round, at); });
      REQUIRE(child > 0);
      const int code = test::wait_for(child);
      INFO("round " << round << ", call " << at);
      REQUIRE(victims.trouble() == "");
      if (code == 0) break;
      REQUIRE(code == -1);
      // At once: a process looks at each of them, and would never get to its end.
      if (const std::size_t left = victims.leftovers(); left > 0) {
        leftovers += left;
        victims.clear();
      }
    }
    // Else too little was done for something to be killed at.
    REQUIRE(at > 50);
    kills += at;
  }
  CHECK(leftovers > 0);
  for (int n = 0; n < kEntries; ++n) {
    REQUIRE(victims.store.publish(big_entry(n)));
    const std::optional<StoredEntry> found = victims.store.lookup(big_entry(n).identity);
    REQUIRE(found);
    CHECK(found->entry == big_entry(n));
  }
}

TEST_CASE("KilledProcessesLeaveOnlyWholeEntriesAndPacks", "[cache]") { kill_processes(1000); }

// Not run by default: scripts/test.sh --sanitizers does.
TEST_CASE("ManyKilledProcessesLeaveOnlyWholeEntriesAndPacks", "[.slow]") { kill_processes(10000); }

}  // namespace
}  // namespace cubinery::kill_test
