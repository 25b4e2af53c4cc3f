// Processes that want the same entry.
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cache/paths.h"
#include "cache/store.h"
#include "tests/cache/child.h"
#include "tests/cache/fault_env.h"
#include "tests/cache/mem_env.h"
#include "tests/cache/sample.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using std::chrono::milliseconds;
using test::Pipe;
using test::sample_entry;
using test::sample_identity;

// Tells of each pause: whoever makes it has found the lock taken.
class TellingEnv : public test::FaultEnv {
 public:
  explicit TellingEnv(const Pipe& pauses) : FaultEnv(posix_env()), pauses_(pauses) {}
  void pause(milliseconds time) override {
    (void)pauses_.send();
    FaultEnv::pause(time);
  }

 private:
  const Pipe& pauses_;
};

// Lookup, lock, lookup again, make, publish: what a context does.  Appends a byte to `made` when it
// makes.
int find_or_make(const std::string& dir, const std::string& made) {
  Store store({.dir = dir});
  if (store.lookup(sample_identity())) return 0;
  const std::unique_ptr<MakeLock> lock = store.lock(sample_identity());
  if (lock == nullptr) return 1;
  if (store.lookup(sample_identity())) return 0;
  std::ofstream(made, std::ios::app) << 'x';
  std::this_thread::sleep_for(milliseconds(50));
  return store.publish(sample_entry()) ? 0 : 2;
}

// A child that holds the lock until it is killed.
pid_t start_holder(const std::string& dir, const Pipe& ready) {
  const pid_t child = test::start_child([&] {
    Store store({.dir = dir});
    const std::unique_ptr<MakeLock> lock = store.lock(sample_identity());
    if (lock == nullptr || !ready.send()) return 1;
    for (;;) ::pause();
  });
  return ready.receive() ? child : -1;
}

TEST_CASE("OneOfManyProcessesMakesAnEntry", "[cache]") {
  constexpr int kProcesses = 64;
  const test::TempDir temp;
  const std::string made = temp.path() + "/made";
  const Pipe start;
  REQUIRE(start.ok());
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(test::start_child(
        [&] { return start.receive() ? find_or_make(temp.path() + "/cache", made) : 3; }));
  }
  for (int i = 0; i < kProcesses; ++i) REQUIRE(start.send());
  for (const pid_t child : children) CHECK(test::wait_for(child) == 0);
  CHECK(test::read_bytes(made) == "x");
  CHECK(test::count_files(temp.path() + "/cache/locks") == 0);
}

TEST_CASE("ADeadOwnersLockIsFreeAtOnce", "[cache]") {
  const test::TempDir temp;
  const Pipe ready;
  const pid_t holder = start_holder(temp.path(), ready);
  REQUIRE(holder > 0);
  Store impatient({.dir = temp.path(), .lock_wait = milliseconds(0)});
  CHECK_FALSE(impatient.lock(sample_identity()));
  test::kill_child(holder);
  CHECK(test::count_files(temp.path() + "/locks") == 1);
  CHECK(impatient.lock(sample_identity()));
  CHECK(test::count_files(temp.path() + "/locks") == 0);
}

// A waiter that missed the death would wait for longer than tests may take.
TEST_CASE("AnOwnerThatDiesFreesWhoeverWaits", "[cache]") {
  const test::TempDir temp;
  const Pipe ready;
  const pid_t holder = start_holder(temp.path(), ready);
  REQUIRE(holder > 0);
  const Pipe pauses;
  const pid_t waiter = test::start_child([&] {
    Store store({.dir = temp.path(), .lock_wait = std::chrono::hours(1)},
                std::make_shared<TellingEnv>(pauses));
    return store.lock(sample_identity()) ? 0 : 1;
  });
  REQUIRE(pauses.receive());
  test::kill_child(holder);
  CHECK(test::wait_for(waiter) == 0);
}

TEST_CASE("AStoppedOwnerDoesNotStopOthers", "[cache]") {
  const test::TempDir temp;
  const Pipe ready;
  const pid_t holder = start_holder(temp.path(), ready);
  REQUIRE(holder > 0);
  REQUIRE(::kill(holder, SIGSTOP) == 0);
  Store store({.dir = temp.path(), .lock_wait = milliseconds(20)});
  CHECK_FALSE(store.lock(sample_identity()));
  // What the lock is for works without it.
  CHECK(store.publish(sample_entry()));
  test::kill_child(holder);
}

TEST_CASE("WaitingIsBoundedAndTold", "[cache]") {
  const auto env = std::make_shared<test::MemEnv>();
  Store holder({.dir = "/cache"}, env);
  const std::unique_ptr<MakeLock> lock = holder.lock(sample_identity());
  REQUIRE(lock);
  test::Log log;
  const auto wait = [&](int ms) {
    env->paused = milliseconds(0);
    Store store({.dir = "/cache", .lock_wait = milliseconds(ms), .log = log.callback()}, env);
    CHECK_FALSE(store.lock(sample_identity()));
    return env->paused;
  };
  CHECK(wait(0) == milliseconds(0));
  CHECK(wait(999) == milliseconds(999));
  CHECK(log.count("") == 0);
  CHECK(wait(1200) == milliseconds(1200));
  CHECK(log.count("row_scale: waiting for process 1 on host/with/slashes, which holds ") == 1);
  CHECK(log.count("row_scale: gave up waiting for process 1 on ") == 1);
  CHECK(log.count("") == 2);
}

TEST_CASE("LocksAreHeldBetweenStoresOfOneProcess", "[cache]") {
  const test::TempDir temp;
  Store first({.dir = temp.path(), .lock_wait = milliseconds(0)});
  Store second({.dir = temp.path(), .lock_wait = milliseconds(0)});
  std::unique_ptr<MakeLock> lock = first.lock(sample_identity());
  REQUIRE(lock);
  CHECK_FALSE(first.lock(sample_identity()));
  CHECK_FALSE(second.lock(sample_identity()));
  CHECK(second.lock(test::numbered_entry(1).identity));
  lock.reset();
  CHECK(second.lock(sample_identity()));
}

TEST_CASE("TheCompilersVersionIsNotPartOfALock", "[cache]") {
  const test::TempDir temp;
  Store store({.dir = temp.path(), .lock_wait = milliseconds(0)});
  const std::unique_ptr<MakeLock> lock = store.lock(sample_identity());
  CHECK_FALSE(store.lock(test::entry_of_version("12.9.1").identity));
}

TEST_CASE("AReplacedLockFileIsNotTheLock", "[cache]") {
  const test::TempDir temp;
  const auto env = posix_env();
  const std::string path = temp.path() + "/x.lock";
  std::unique_ptr<HeldLock> first;
  REQUIRE_FALSE(env->try_lock(path, "first", &first));
  CHECK(test::read_bytes(path) == "first");
  // Somebody cleans up by hand: the next one gets a lock of its own, and nobody hangs.
  REQUIRE_FALSE(env->remove(path));
  std::unique_ptr<HeldLock> second;
  CHECK_FALSE(env->try_lock(path, "second", &second));
  CHECK(test::read_bytes(path) == "second");
}

// The file that was opened may be gone from its path before it is locked.
TEST_CASE("LocksExcludeEachOtherWhileFilesComeAndGo", "[cache]") {
  const test::TempDir temp;
  const auto env = posix_env();
  std::atomic<int> holders{0};
  std::atomic<int> collisions{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int taken = 0; taken < 200;) {
        std::unique_ptr<HeldLock> held;
        if (env->try_lock(temp.path() + "/x.lock", "thread", &held)) continue;
        if (holders.fetch_add(1) != 0) ++collisions;
        std::this_thread::yield();
        --holders;
        ++taken;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(collisions == 0);
}

TEST_CASE("ALockFileThatIsASymbolicLinkIsNotFollowed", "[cache]") {
  const test::TempDir temp;
  const std::string target = temp.path() + "/target";
  test::write_bytes(target, "precious");
  REQUIRE(::symlink(target.c_str(), (temp.path() + "/x.lock").c_str()) == 0);
  std::unique_ptr<HeldLock> held;
  CHECK(posix_env()->try_lock(temp.path() + "/x.lock", "me", &held));
  CHECK(test::read_bytes(target) == "precious");
}

TEST_CASE("AFileWithAnotherNameIsNoLock", "[cache]") {
  const test::TempDir temp;
  const std::string target = temp.path() + "/target";
  const std::string path = temp.path() + "/x.lock";
  test::write_bytes(target, "precious");
  REQUIRE(::link(target.c_str(), path.c_str()) == 0);
  std::unique_ptr<HeldLock> held;
  CHECK(posix_env()->try_lock(path, "me", &held) == std::errc::too_many_links);
  CHECK_FALSE(held);
  CHECK(test::read_bytes(target) == "precious");
  CHECK(test::read_bytes(path) == "precious");
}

TEST_CASE("WithoutLocksNobodyWaits", "[cache]") {
  const std::errc error = GENERATE(std::errc::no_lock_available, std::errc::operation_not_supported,
                                   std::errc::read_only_file_system, std::errc::permission_denied);
  const auto memory = std::make_shared<test::MemEnv>();
  const auto env = std::make_shared<test::FaultEnv>(memory);
  env->fail(test::Op::kLock, error);
  Store store({.dir = "/cache"}, env);
  CHECK_FALSE(store.lock(sample_identity()));
  CHECK(memory->paused == milliseconds(0));
}

}  // namespace
}  // namespace cubinery
