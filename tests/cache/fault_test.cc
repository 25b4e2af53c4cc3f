// Disks that are full, that fail and that lose power.
#include <string>

#include "cache/paths.h"
#include "cache/store.h"
#include "tests/cache/fault_env.h"
#include "tests/cache/mem_env.h"
#include "tests/cache/sample.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::FaultEnv;
using test::MemEnv;
using test::Op;
using test::sample_entry;
using test::sample_identity;

struct FaultyCache {
  std::shared_ptr<MemEnv> disk = std::make_shared<MemEnv>();
  std::shared_ptr<FaultEnv> env = std::make_shared<FaultEnv>(disk);
  test::Log log;
  Store store{{.dir = "/cache", .log = log.callback()}, env};

  std::size_t temporaries() {
    std::size_t count = 0;
    for (const auto& [path, file] : disk->files()) count += path.starts_with("/cache/tmp/") ? 1 : 0;
    return count;
  }

  // After anything: what is found is right, nothing is damaged, and the next publish works.
  void check_sound() {
    env->heal();
    disk->sync_fails = false;
    const std::optional<StoredEntry> found = store.lookup(sample_identity());
    CHECK((!found || found->entry == sample_entry()));
    CHECK(store.damaged() == 0);
    REQUIRE(store.publish(sample_entry()));
    const std::optional<StoredEntry> healed = store.lookup(sample_identity());
    REQUIRE(healed);
    CHECK(healed->entry == sample_entry());
  }
};

TEST_CASE("AFailedPublishIsReportedAndHarmless", "[cache]") {
  const Op op = GENERATE(Op::kWrite, Op::kRename, Op::kSyncDir, Op::kMakeDirs, Op::kStat);
  const bool replaces = GENERATE(false, true);
  if (op == Op::kMakeDirs && replaces) return;  // they are there
  INFO("operation " << static_cast<int>(op) << ", replaces " << replaces);
  FaultyCache cache;
  if (replaces) REQUIRE(cache.store.publish(sample_entry()));
  cache.env->fail(op, std::errc::read_only_file_system);
  for (int i = 0; i < 3; ++i) {
    const Result<std::string> path = cache.store.publish(sample_entry());
    REQUIRE_FALSE(path);
    CHECK(path.error().code() == Code::kIo);
    CHECK(path.error().message().find("/cache") != std::string_view::npos);
    CHECK(path.error().message().find("Read-only file system") != std::string_view::npos);
  }
  CHECK(cache.store.failed_writes() == 3);
  CHECK(cache.log.count("Read-only file system") == 1);
  CHECK(cache.temporaries() == 0);
  cache.check_sound();
}

TEST_CASE("WhatPublishCanDoWithoutMayFail", "[cache]") {
  const Op op = GENERATE(Op::kRead, Op::kAppend, Op::kRemove, Op::kList, Op::kSetMtime, Op::kLock);
  INFO("operation " << static_cast<int>(op));
  FaultyCache cache;
  cache.env->fail(op, std::errc::permission_denied);
  CHECK(cache.store.publish(sample_entry()));
  CHECK(cache.store.failed_writes() == 0);
  cache.check_sound();
}

TEST_CASE("AFullDiskIsReportedAndHarmless", "[cache]") {
  for (std::size_t bytes = 0; bytes < encoded_bytes(sample_entry()); ++bytes) {
    FaultyCache cache;
    cache.env->fill_disk_after(bytes);
    const Result<std::string> path = cache.store.publish(sample_entry());
    REQUIRE_FALSE(path);
    REQUIRE(path.error().message().find("No space left on device") != std::string_view::npos);
    REQUIRE(cache.temporaries() == 0);
    REQUIRE_FALSE(cache.store.lookup(sample_identity()));
    cache.check_sound();
  }
}

TEST_CASE("ATemporaryThatCannotBeRemovedIsNeverAnEntry", "[cache]") {
  FaultyCache cache;
  cache.env->fill_disk_after(100);
  cache.env->fail(Op::kRemove, std::errc::io_error);
  REQUIRE_FALSE(cache.store.publish(sample_entry()));
  CHECK(cache.temporaries() == 1);
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  CHECK(test::list_all(cache.store).empty());
  cache.check_sound();
  cache.env->advance_clock(3601);
  REQUIRE(cache.store.gc());
  CHECK(cache.temporaries() == 0);
}

TEST_CASE("APublishedEntrySurvivesPowerLoss", "[cache]") {
  const MemEnv::Unsynced unsynced = GENERATE(MemEnv::Unsynced::kKept, MemEnv::Unsynced::kLost);
  FaultyCache cache;
  REQUIRE(cache.store.publish(sample_entry()));
  cache.disk->crash(unsynced);
  CHECK(cache.store.lookup(sample_identity()));
  cache.check_sound();
}

TEST_CASE("PowerLossAfterAFailedPublishDamagesNothing", "[cache]") {
  const MemEnv::Unsynced unsynced = GENERATE(MemEnv::Unsynced::kKept, MemEnv::Unsynced::kLost);
  const bool replaces = GENERATE(false, true);
  FaultyCache cache;
  if (replaces) REQUIRE(cache.store.publish(sample_entry()));
  SECTION("the file could not be synced") { cache.disk->sync_fails = true; }
  SECTION("nor removed") {
    cache.disk->sync_fails = true;
    cache.env->fail(Op::kRemove, std::errc::io_error);
  }
  SECTION("it could not be renamed") { cache.env->fail(Op::kRename, std::errc::io_error); }
  SECTION("the directory could not be synced") {
    cache.env->fail(Op::kSyncDir, std::errc::io_error);
  }
  REQUIRE_FALSE(cache.store.publish(sample_entry()));
  cache.disk->crash(unsynced);
  if (replaces) CHECK(cache.store.lookup(sample_identity()));
  cache.check_sound();
}

TEST_CASE("AFailedLookupIsAMiss", "[cache]") {
  const Op op = GENERATE(Op::kRead, Op::kStat);
  FaultyCache cache;
  REQUIRE(cache.store.publish(sample_entry()));
  cache.env->fail(op, std::errc::permission_denied);
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  CHECK(cache.log.count("Permission denied") == 1);
}

TEST_CASE("AnEntryThatCannotBeReadIsNotRemoved", "[cache]") {
  FaultyCache cache;
  REQUIRE(cache.store.publish(sample_entry()));
  cache.env->fail(Op::kRead, std::errc::io_error);
  REQUIRE(cache.store.gc());
  cache.env->heal();
  CHECK(cache.store.lookup(sample_identity()));
}

TEST_CASE("AnyFlippedByteOnDiskIsAMissAndHeals", "[cache]") {
  FaultyCache cache;
  REQUIRE(cache.store.publish(sample_entry()));
  std::string& bytes = cache.disk->files()[cache.store.path_of(sample_identity())].bytes;
  const std::size_t size = bytes.size();
  for (std::size_t i = 0; i < size; ++i) {
    INFO("byte " << i);
    bytes[i] = static_cast<char>(bytes[i] ^ 0x55);
    REQUIRE_FALSE(cache.store.lookup(sample_identity()));
    REQUIRE(cache.store.damaged() == i + 1);
    REQUIRE(cache.store.publish(sample_entry()));
    const std::optional<StoredEntry> healed = cache.store.lookup(sample_identity());
    REQUIRE(healed);
    REQUIRE(healed->entry == sample_entry());
  }
}

}  // namespace
}  // namespace cubinery
