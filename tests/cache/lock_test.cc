// Processes that want the same entry.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
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

// The real file system and its locks, with a clock that stands still but for pauses, which are
// none.
class PatientEnv : public test::FaultEnv {
 public:
  PatientEnv() : FaultEnv(posix_env()) {}
  milliseconds uptime() override { return paused; }
  void pause(milliseconds time) override { paused += time; }

  milliseconds paused{0};
};

// A stopped child that holds the locks of so many entries, from `first` on.
pid_t start_stopped(const std::string& dir, const Pipe& ready, int first, int count) {
  const pid_t child = test::start_child([&] {
    Store store({.dir = dir});
    std::vector<std::unique_ptr<MakeLock>> locks;
    for (int n = first; n < first + count; ++n) {
      locks.push_back(store.lock(test::numbered_entry(n).identity));
      if (!locks.back()) return 1;
    }
    if (!ready.send()) return 1;
    for (;;) ::pause();
  });
  return child > 0 && ready.receive() && ::kill(child, SIGSTOP) == 0 ? child : -1;
}

TEST_CASE("AStoppedProcessIsWaitedForOnce", "[cache]") {
  constexpr int kLocks = 13;
  const test::TempDir temp;
  const Pipe ready;
  const pid_t holder = start_stopped(temp.path(), ready, 0, kLocks);
  REQUIRE(holder > 0);
  const auto env = std::make_shared<PatientEnv>();
  test::Log log;
  Store store({.dir = temp.path(), .lock_wait = milliseconds(60000), .log = log.callback()}, env);
  for (int n = 0; n < kLocks; ++n) CHECK_FALSE(store.lock(test::numbered_entry(n).identity));
  CHECK(env->paused == milliseconds(60000));
  CHECK(log.count("gave up waiting for process " + std::to_string(holder)) == 1);
  CHECK(log.count("; it was waited for in vain") == kLocks - 1);
  // Who has made what it was waited for needs no lock of it any more; and it goes on.
  ::kill(holder, SIGCONT);
  test::kill_child(holder);
  for (int n = 0; n < kLocks; ++n) CHECK(store.lock(test::numbered_entry(n).identity));
  CHECK(env->paused == milliseconds(60000));
}

TEST_CASE("EachStoppedProcessIsWaitedForOnceAndAllOfThemByOneCall", "[cache]") {
  const bool is_one_call = GENERATE(false, true);
  const test::TempDir temp;
  const Pipe ready;
  const std::vector<pid_t> holders = {start_stopped(temp.path(), ready, 0, 4),
                                      start_stopped(temp.path(), ready, 4, 4)};
  const auto env = std::make_shared<PatientEnv>();
  Store store({.dir = temp.path(), .lock_wait = milliseconds(60000)}, env);
  WaitBudget budget(milliseconds(60000));
  for (const int n : {0, 4, 1, 5, 2, 6, 3, 7}) {
    CHECK_FALSE(store.lock(test::numbered_entry(n).identity, is_one_call ? &budget : nullptr));
  }
  CHECK(env->paused == milliseconds(is_one_call ? 60000 : 120000));
  // The next call has a budget of its own, and knows the first of them.
  WaitBudget next(milliseconds(60000));
  for (const int n : {1, 5, 2, 6}) {
    CHECK_FALSE(store.lock(test::numbered_entry(n).identity, &next));
  }
  CHECK(env->paused == milliseconds(120000));
  for (const pid_t holder : holders) test::kill_child(holder);
}

// Nobody is given up for good: a process that was stopped goes on, and its lock is seen free.
TEST_CASE("WhoLetsGoOfALockIsWaitedForAgain", "[cache]") {
  const auto env = std::make_shared<test::MemEnv>();
  Store holder({.dir = "/cache"}, env);
  Store store({.dir = "/cache", .lock_wait = milliseconds(1000)}, env);
  const auto lock = [](Store& of, int n) { return of.lock(test::numbered_entry(n).identity); };
  std::unique_ptr<MakeLock> first = lock(holder, 0);
  const std::unique_ptr<MakeLock> second = lock(holder, 1);
  CHECK_FALSE(lock(store, 0));
  CHECK_FALSE(lock(store, 1));
  CHECK(env->paused == milliseconds(1000));
  SECTION("it has no holder") { first.reset(); }
  SECTION("it has another one") {
    first.reset();
    first = lock(holder, 0);
    env->files()[paths::lock_path("/cache", test::numbered_entry(0).identity)].bytes = "process 2";
  }
  CHECK_FALSE(lock(store, 1));
  CHECK(env->paused == milliseconds(2000));
}

// Threads that wait for the same process at the same time end at the same time.
TEST_CASE("AWaitEndsWhenAnotherThreadHasWaitedInVain", "[cache]") {
  const auto env = std::make_shared<test::MemEnv>();
  Store holder({.dir = "/cache"}, env);
  const auto held = holder.lock(sample_identity());
  const std::string path = paths::lock_path("/cache", sample_identity());
  LostHolders lost;
  WaitBudget budget(milliseconds(60000));
  std::function<void(std::string_view)> tell = [&](std::string_view) {
    lost.add(env->lock_owner(path), "/cache/locks/another");
  };
  CHECK_FALSE(wait_for_lock(
      *env,
      {.path = path, .wait = milliseconds(60000), .budget = budget, .lost = lost, .tell = tell}));
  CHECK(env->paused < milliseconds(1100));  // told after a second
}

TEST_CASE("AForkedChildHasNoneOfItsParentsLocks", "[cache]") {
  const test::TempDir temp;
  const Identity wanted = sample_identity();
  const std::string path = paths::lock_path(temp.path(), wanted);
  StoreOptions options{.dir = temp.path(), .lock_wait = milliseconds(0)};
  Store parent(options);
  std::unique_ptr<MakeLock> lock = parent.lock(wanted);
  REQUIRE(lock);
  const Pipe looked;
  const Pipe go;
  const pid_t child = test::start_child([&] {
    ::alarm(300);
    Store store(options);
    if (store.lock(wanted)) return 1;  // the parent's
    lock.reset();
    if (store.lock(wanted) || !std::filesystem::exists(path)) return 2;  // is the parent's still
    // Lives on without it.
    if (!looked.send() || !go.receive()) return 3;
    return store.lock(wanted) ? 0 : 4;
  });
  REQUIRE(looked.receive());
  const pid_t other = test::start_child([&] { return Store(options).lock(wanted) ? 1 : 0; });
  CHECK(test::wait_for(other) == 0);
  lock.reset();
  CHECK_FALSE(std::filesystem::exists(path));
  REQUIRE(go.send());
  CHECK(test::wait_for(child) == 0);
}

// The holder is dead, its child lives and has all its descriptors.
TEST_CASE("ADeadOwnersChildKeepsNoLock", "[cache]") {
  const test::TempDir temp;
  const Pipe ready;
  const Pipe end;
  const pid_t holder = test::start_child([&] {
    Store store({.dir = temp.path()});
    const std::unique_ptr<MakeLock> lock = store.lock(sample_identity());
    const pid_t child = test::start_child([&] { return ready.send() && end.receive() ? 0 : 1; });
    if (!lock || child < 0) return 1;
    for (;;) ::pause();
  });
  REQUIRE(holder > 0);
  REQUIRE(ready.receive());
  Store store({.dir = temp.path(), .lock_wait = milliseconds(0)});
  CHECK_FALSE(store.lock(sample_identity()));
  test::kill_child(holder);
  CHECK(store.lock(sample_identity()));
  CHECK(end.send());
}

// Closing any descriptor of a lock file would let go of it.
TEST_CASE("ReadingWhoHoldsALockDoesNotReleaseIt", "[cache]") {
  const test::TempDir temp;
  REQUIRE(::symlink(temp.path().c_str(), (temp.path() + "/alias").c_str()) == 0);
  const auto env = posix_env();
  const std::string path = temp.path() + "/x.lock";
  const std::string alias = temp.path() + "/alias/x.lock";
  std::unique_ptr<HeldLock> held;
  REQUIRE_FALSE(env->try_lock(path, "me", &held));
  std::unique_ptr<HeldLock> second;
  for (const std::string& name : {path, alias}) {
    CHECK(env->try_lock(name, "me too", &second) == std::errc::operation_would_block);
    CHECK(env->lock_owner(name) == "me");
  }
  const pid_t child = test::start_child([&] {
    std::unique_ptr<HeldLock> taken;
    if (posix_env()->lock_owner(path) != "me") return 1;
    return posix_env()->try_lock(path, "child", &taken) == std::errc::operation_would_block ? 0 : 2;
  });
  CHECK(test::wait_for(child) == 0);
}

// A child of a thread that held the list of locks: nothing in it waits for that thread.
TEST_CASE("AChildForkedWhileThreadsLockHasLocks", "[cache]") {
  const test::TempDir temp;
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      const auto env = posix_env();
      while (!end) {
        std::unique_ptr<HeldLock> held;
        (void)env->try_lock(fmt::format("{}/{}.lock", temp.path(), t), "thread", &held);
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    const pid_t child = test::start_child([&] {
      ::alarm(60);
      std::unique_ptr<HeldLock> held;
      return posix_env()->try_lock(temp.path() + "/child.lock", "child", &held) ? 1 : 0;
    });
    REQUIRE(test::wait_for(child) == 0);
  }
  end = true;
  for (std::thread& thread : threads) thread.join();
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
