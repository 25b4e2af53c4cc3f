// Recency, eviction and sweeping.
#include "cache/gc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "cache/store.h"
#include "tests/cache/mem_cache.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::kDir;
using test::kSecond;
using test::MemCache;
using test::MemEnv;
using test::numbered_entry;
using test::publishes;
using test::sample_entry;
using test::sample_identity;

TEST_CASE("AHitRenewsAnOldStampOnly", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  const std::int64_t published = cache.env->now;
  const FileInfo& info = cache.env->files()[cache.store.path_of(sample_identity())].info;
  CHECK(info.mtime_ns == published);

  cache.env->now += 599 * kSecond;
  REQUIRE(cache.store.lookup(sample_identity()));
  CHECK(info.mtime_ns == published);
  cache.env->now += 2 * kSecond;
  REQUIRE(cache.store.lookup(sample_identity()));
  CHECK(info.mtime_ns == cache.env->now);
  // The clock was wrong and has been set right.
  cache.env->now = published;
  REQUIRE(cache.store.lookup(sample_identity()));
  CHECK(info.mtime_ns == published);
}

TEST_CASE("AHitInALayerLeavesItAlone", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.layer, sample_entry()));
  const std::int64_t published = cache.env->now;
  cache.env->now += 10000 * kSecond;
  REQUIRE(cache.store.lookup(sample_identity()));
  CHECK(cache.env->files()[cache.layer.path_of(sample_identity())].info.mtime_ns == published);
}

TEST_CASE("TheLeastRecentlyUsedEntriesAreEvicted", "[cache]") {
  const auto env = std::make_shared<MemEnv>();
  const std::uint64_t size = encoded_bytes(numbered_entry(0));
  Store store({.dir = kDir, .limit_bytes = 3 * size}, env);
  for (int n = 0; n < 3; ++n) {
    env->now += 1000 * kSecond;
    REQUIRE(publishes(store, numbered_entry(n)));
  }
  env->now += 1000 * kSecond;
  REQUIRE(store.lookup(numbered_entry(0).identity));  // now 1 is the oldest
  REQUIRE(publishes(store, numbered_entry(3)));
  CHECK(store.lookup(numbered_entry(0).identity));
  CHECK_FALSE(store.lookup(numbered_entry(1).identity));
  CHECK(store.lookup(numbered_entry(2).identity));
  CHECK(store.lookup(numbered_entry(3).identity));
}

// Else they stay for ever, and each new entry drives out the last.
TEST_CASE("EntriesFromTheFutureAreEvictedFirst", "[cache]") {
  const auto env = std::make_shared<MemEnv>();
  const std::uint64_t size = encoded_bytes(numbered_entry(0));
  Store store({.dir = kDir, .limit_bytes = 3 * size}, env);
  const std::int64_t now = env->now;
  env->now = now + 365 * 24 * 3600 * kSecond;
  for (int n = 0; n < 3; ++n) REQUIRE(publishes(store, numbered_entry(n)));
  env->now = now;
  for (int n = 3; n < 6; ++n) {
    env->now += kSecond;
    REQUIRE(publishes(store, numbered_entry(n)));
  }
  for (int n = 0; n < 6; ++n)
    CHECK(store.lookup(numbered_entry(n).identity).has_value() == (n >= 3));
}

TEST_CASE("ThePublishedEntryIsNotEvicted", "[cache]") {
  const auto env = std::make_shared<MemEnv>();
  Store store({.dir = kDir, .limit_bytes = 1}, env);
  REQUIRE(publishes(store, numbered_entry(0)));
  env->now -= 1000 * kSecond;  // older than what it replaces
  REQUIRE(publishes(store, numbered_entry(1)));
  CHECK_FALSE(store.lookup(numbered_entry(0).identity));
  CHECK(store.lookup(numbered_entry(1).identity));
}

TEST_CASE("GcKeepsToTheLimit", "[cache]") {
  MemCache cache;
  for (int n = 0; n < 5; ++n) {
    cache.env->now += kSecond;
    REQUIRE(publishes(cache.store, numbered_entry(n)));
  }
  const std::uint64_t size = encoded_bytes(numbered_entry(0));
  Result<GcResult> result = cache.store.gc();
  REQUIRE(result);
  CHECK(result->entries_removed == 0);
  CHECK(result->bytes_before == 5 * size);

  result = cache.store.gc(2 * size);
  REQUIRE(result);
  CHECK(result->entries_removed == 3);
  CHECK(result->bytes_before == 5 * size);
  CHECK(result->bytes_after == 2 * size);
  CHECK_FALSE(cache.store.lookup(numbered_entry(2).identity));
  CHECK(cache.store.lookup(numbered_entry(3).identity));
}

TEST_CASE("GcRemovesDamagedEntriesButNotNewerOnes", "[cache]") {
  MemCache cache;
  for (int n = 0; n < 3; ++n) REQUIRE(publishes(cache.store, numbered_entry(n)));
  auto& files = cache.env->files();
  const std::string readme = kDir + "/entries/README";
  files[readme] = {"not ours", {}};
  files[cache.store.path_of(numbered_entry(1).identity)].bytes[100] ^= 1;
  files[cache.store.path_of(numbered_entry(2).identity)].bytes[8] = kEntryFormat + 1;
  const Result<GcResult> result = cache.store.gc();
  REQUIRE(result);
  CHECK(result->entries_removed == 1);
  CHECK(result->bytes_before == 3 * encoded_bytes(numbered_entry(0)));
  CHECK(result->bytes_after == 2 * encoded_bytes(numbered_entry(0)));
  CHECK(files.contains(cache.store.path_of(numbered_entry(0).identity)));
  CHECK_FALSE(files.contains(cache.store.path_of(numbered_entry(1).identity)));
  CHECK(files.contains(cache.store.path_of(numbered_entry(2).identity)));
  CHECK(files.contains(readme));
}

const std::string kStaleTemporary = "12-a-host-0-34.tmp";
const std::string kYoungTemporary = "13-host-1-35.tmp";
const std::string kStaleLock = std::string(32, 'a') + ".lock";
const std::string kHeldLock = std::string(32, 'b') + ".lock";
const std::string kYoungLock = std::string(32, '0') + ".lock";

TEST_CASE("StaleTemporariesAndLockFilesAreSwept", "[cache]") {
  MemCache cache;
  REQUIRE(cache.env->make_dirs(kDir + "/tmp") == std::error_code());
  REQUIRE(cache.env->make_dirs(kDir + "/locks") == std::error_code());
  MemEnv::File stale{"half an entry", {}};
  stale.info.mtime_ns = cache.env->now - 3601 * kSecond;
  MemEnv::File young = stale;
  young.info.mtime_ns += 2 * kSecond;
  auto& files = cache.env->files();
  files = {{kDir + "/tmp/" + kStaleTemporary, stale},
           {kDir + "/tmp/" + kYoungTemporary, young},
           {kDir + "/tmp/README", stale},
           {kDir + "/tmp/mine.tmp", stale},
           {kDir + "/locks/mine.lock", stale},
           {kDir + "/locks/" + kStaleLock, stale},
           {kDir + "/locks/" + kHeldLock, stale},
           {kDir + "/locks/" + kYoungLock, young}};
  std::unique_ptr<HeldLock> held;
  REQUIRE_FALSE(cache.env->try_lock(kDir + "/locks/" + kHeldLock, "test", &held));
  const auto check_swept = [&] {
    CHECK_FALSE(files.contains(kDir + "/tmp/" + kStaleTemporary));
    CHECK(files.contains(kDir + "/tmp/" + kYoungTemporary));
    for (const char* foreign : {"/tmp/README", "/tmp/mine.tmp", "/locks/mine.lock"}) {
      CHECK(files.contains(kDir + foreign));
    }
    CHECK_FALSE(files.contains(kDir + "/locks/" + kStaleLock));
    CHECK(files.contains(kDir + "/locks/" + kHeldLock));
    CHECK(files.contains(kDir + "/locks/" + kYoungLock));
  };
  SECTION("by gc") {
    const Result<GcResult> result = cache.store.gc();
    REQUIRE(result);
    CHECK(result->temporaries_removed == 2);
    check_swept();
  }
  SECTION("by the first publish of a store, not by later ones") {
    REQUIRE(publishes(cache.store, sample_entry()));
    check_swept();
    files[kDir + "/tmp/" + kStaleTemporary] = stale;
    REQUIRE(publishes(cache.store, sample_entry()));
    CHECK(files.contains(kDir + "/tmp/" + kStaleTemporary));
  }
}

TEST_CASE("WhatOthersCouldHavePlacedIsNotSwept", "[cache]") {
  struct Case {
    std::uint32_t owner;
    std::uint32_t mode;
  };
  const Case whose = GENERATE(Case{1234, 0755}, Case{MemEnv::kUser, 0777});
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  auto& files = cache.env->files();
  MemEnv::File stale{"half an entry", {}};
  stale.info.mtime_ns = cache.env->now - 3601 * kSecond;
  for (const char* sub : {"/tmp", "/locks"}) {
    REQUIRE_FALSE(cache.env->make_dirs(kDir + sub));
    cache.env->dirs()[kDir + sub].owner = whose.owner;
    cache.env->dirs()[kDir + sub].mode = whose.mode;
  }
  files[kDir + "/tmp/" + kStaleTemporary] = stale;
  files[kDir + "/locks/" + kStaleLock] = stale;
  REQUIRE(cache.store.gc());
  CHECK(files.contains(kDir + "/tmp/" + kStaleTemporary));
  CHECK(files[kDir + "/locks/" + kStaleLock].bytes == "half an entry");
  Store trusting({.dir = kDir, .trust = {.everybody = true}}, cache.env);
  CHECK(trusting.gc().value().temporaries_removed == 2);
}

// What gc() did to the files of somebody who can write to locks/ or tmp/, on a real disk.
TEST_CASE("LinksInLocksAndTmpLoseNothing", "[cache]") {
  const test::TempDir temp;
  const std::string dir = temp.path() + "/cache";
  const std::string precious = temp.path() + "/precious";
  std::filesystem::create_directories(dir + "/locks");
  std::filesystem::create_directories(precious);
  test::write_bytes(precious + "/thesis", "text");
  test::write_bytes(precious + "/notes.tmp", "text");
  REQUIRE(::link((precious + "/thesis").c_str(), (dir + "/locks/" + kStaleLock).c_str()) == 0);
  REQUIRE(::symlink(precious.c_str(), (dir + "/tmp").c_str()) == 0);
  const auto env = posix_env();
  for (const char* file : {"/thesis", "/notes.tmp"}) {
    REQUIRE_FALSE(env->set_mtime(precious + file, env->now_ns() - 7200 * kSecond));
  }
  Store store({.dir = dir, .trust = {.everybody = GENERATE(false, true)}});
  REQUIRE(store.gc());
  CHECK(test::read_bytes(precious + "/thesis") == "text");
  CHECK(test::read_bytes(precious + "/notes.tmp") == "text");
}

// A file's time has 64 bits of seconds, as many as nanoseconds have in all.
TEST_CASE("TimesOfAnyYearAreSaturated", "[cache]") {
  constexpr std::int64_t kLimit = std::int64_t{9'000'000'000} * kSecond;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(saturated_ns(1'700'000'000, 5) == 1'700'000'000 * kSecond + 5);
  CHECK(saturated_ns(-1, 999'999'999) == -1);
  CHECK(saturated_ns(8'999'999'999, 999'999'999) == kLimit - 1);
  CHECK(saturated_ns(9'000'000'000, 999'999'999) == kLimit);
  CHECK(saturated_ns(kMost, 999'999'999) == kLimit);
  CHECK(saturated_ns(-kMost - 1, 0) == -kLimit);

  const test::TempDir temp;
  Store store({.dir = temp.path()});
  REQUIRE(publishes(store, sample_entry()));
  const std::string path = store.path_of(sample_identity());
  constexpr std::int64_t kYear2400 = 13'569'465'600;
  const std::array<timespec, 2> times{timespec{kYear2400, 0}, timespec{kYear2400, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0);
  FileInfo info;
  REQUIRE_FALSE(posix_env()->stat(path, &info));
  CHECK(info.mtime_ns == kLimit);
  // From the future: renewed by a hit.
  REQUIRE(store.lookup(sample_identity()));
  REQUIRE_FALSE(posix_env()->stat(path, &info));
  CHECK(info.mtime_ns < kLimit);
}

TEST_CASE("GcOfNothingIsFine", "[cache]") {
  MemCache cache;
  const Result<GcResult> result = cache.store.gc();
  REQUIRE(result);
  CHECK(result->bytes_after == 0);
}

}  // namespace
}  // namespace cubinery
