// Recency, eviction and sweeping.
#include "cache/gc.h"

#include <memory>
#include <string>

#include "cache/store.h"
#include "tests/cache/mem_cache.h"
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

TEST_CASE("StaleTemporariesAndLockFilesAreSwept", "[cache]") {
  MemCache cache;
  REQUIRE(cache.env->make_dirs(kDir + "/tmp") == std::error_code());
  REQUIRE(cache.env->make_dirs(kDir + "/locks") == std::error_code());
  MemEnv::File stale{"half an entry", {}};
  stale.info.mtime_ns = cache.env->now - 3601 * kSecond;
  MemEnv::File young = stale;
  young.info.mtime_ns += 2 * kSecond;
  auto& files = cache.env->files();
  files = {{kDir + "/tmp/stale.tmp", stale},   {kDir + "/tmp/young.tmp", young},
           {kDir + "/tmp/README", stale},      {kDir + "/locks/stale.lock", stale},
           {kDir + "/locks/held.lock", stale}, {kDir + "/locks/young.lock", young}};
  std::unique_ptr<HeldLock> held;
  REQUIRE_FALSE(cache.env->try_lock(kDir + "/locks/held.lock", "test", &held));
  const auto check_swept = [&] {
    CHECK_FALSE(files.contains(kDir + "/tmp/stale.tmp"));
    CHECK(files.contains(kDir + "/tmp/young.tmp"));
    CHECK(files.contains(kDir + "/tmp/README"));
    CHECK_FALSE(files.contains(kDir + "/locks/stale.lock"));
    CHECK(files.contains(kDir + "/locks/held.lock"));
    CHECK(files.contains(kDir + "/locks/young.lock"));
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
    files[kDir + "/tmp/stale.tmp"] = stale;
    REQUIRE(publishes(cache.store, sample_entry()));
    CHECK(files.contains(kDir + "/tmp/stale.tmp"));
  }
}

TEST_CASE("GcOfNothingIsFine", "[cache]") {
  MemCache cache;
  const Result<GcResult> result = cache.store.gc();
  REQUIRE(result);
  CHECK(result->bytes_after == 0);
}

}  // namespace
}  // namespace cubinery
