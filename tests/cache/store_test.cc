#include "cache/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cache/paths.h"
#include "tests/cache/mem_cache.h"
#include "tests/cache/sample.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::entry_of_version;
using test::kDir;
using test::kLayer;
using test::kSecond;
using test::MemCache;
using test::MemEnv;
using test::numbered_entry;
using test::publishes;
using test::sample_entry;
using test::sample_identity;
using test::TempDir;

std::string version_found(Store& store) {
  Identity wanted = sample_identity();
  wanted.nvrtc.clear();
  const std::optional<StoredEntry> found = store.lookup(wanted);
  return found ? found->entry.identity.nvrtc : "none";
}

TEST_CASE("APublishedEntryIsFound", "[cache]") {
  const TempDir dir;
  Store store({.dir = dir.path() + "/new/cache"});
  CHECK_FALSE(store.lookup(sample_identity()));
  const Result<std::string> path = store.publish(sample_entry());
  REQUIRE(path);
  CHECK(*path == store.path_of(sample_identity()));

  const std::optional<StoredEntry> found = store.lookup(sample_identity());
  REQUIRE(found);
  CHECK(found->entry == sample_entry());
  CHECK(found->path == *path);
  CHECK(found->writable_layer);
  CHECK(store.damaged() == 0);
}

TEST_CASE("DirectoriesArePrivateAndNoTemporaryStays", "[cache]") {
  const TempDir dir;
  Store store({.dir = dir.path() + "/a/b"});
  REQUIRE(publishes(store, sample_entry()));
  for (const char* name : {"/a", "/a/b", "/a/b/entries", "/a/b/tmp"}) {
    struct ::stat status {};
    REQUIRE(::stat((dir.path() + name).c_str(), &status) == 0);
    CHECK((status.st_mode & 07777u) == 0700);
  }
  CHECK(test::count_files(dir.path() + "/a/b/tmp") == 0);
  CHECK(test::count_files(dir.path() + "/a/b/entries") == 1);
}

TEST_CASE("FileNamesAreThoseOfTheFormat", "[cache]") {
  MemCache cache;
  const std::string name = "row_scale-" + request_digest(sample_identity()) + "-nvrtc13.0.88.entry";
  CHECK(cache.store.path_of(sample_identity()) == kDir + "/entries/" + name);
  CHECK(paths::version_in(name) == "13.0.88");
  for (const char* bad : {"", ".entry", "x.entry", "row_scale-0011-nvrtc1.entry", "README"}) {
    CHECK_FALSE(paths::version_in(bad));
  }
  CHECK_FALSE(paths::version_in(name + "~"));
}

TEST_CASE("ConstructingAStoreTouchesNoFile", "[cache]") {
  MemCache cache;
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  CHECK(cache.env->dirs().empty());
}

TEST_CASE("NamesThatAreNoFileNamesAreRefused", "[cache]") {
  MemCache cache;
  for (const char* kernel : {"", "../row_scale", "row scale", "row-scale"}) {
    Entry entry = sample_entry();
    entry.identity.kernel = kernel;
    const Result<std::string> path = cache.store.publish(entry);
    REQUIRE_FALSE(path);
    CHECK(path.error().code() == Code::kInvalidArgument);
    CHECK_FALSE(cache.store.lookup(entry.identity));
  }
  for (const char* version : {"", "13/../..", "13.0.88 "}) {
    REQUIRE_FALSE(cache.store.publish(entry_of_version(version)));
  }
  CHECK(cache.env->files().empty());
}

TEST_CASE("WithoutADirectoryNothingIsWrittenOrRemoved", "[cache]") {
  const auto env = std::make_shared<MemEnv>();
  Store layer({.dir = kLayer}, env);
  REQUIRE(publishes(layer, sample_entry()));
  Store store({.layers = {"", kLayer}}, env);
  CHECK(store.lookup(sample_identity()));
  CHECK_FALSE(store.publish(sample_entry()));
  CHECK_FALSE(store.lock(sample_identity()));
  CHECK_FALSE(store.gc());
  CHECK_FALSE(store.check_writable().ok());
  CHECK(store.path_of(sample_identity()).empty());
}

TEST_CASE("TheWritableDirectoryComesBeforeTheLayers", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.layer, sample_entry()));
  std::optional<StoredEntry> found = cache.store.lookup(sample_identity());
  REQUIRE(found);
  CHECK_FALSE(found->writable_layer);
  CHECK(found->path.starts_with(kLayer));

  REQUIRE(publishes(cache.store, sample_entry()));
  found = cache.store.lookup(sample_identity());
  REQUIRE(found);
  CHECK(found->writable_layer);
}

TEST_CASE("ADamagedEntryIsPassedOverForTheNextLayer", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.layer, sample_entry()));
  REQUIRE(publishes(cache.store, sample_entry()));
  cache.env->files()[cache.store.path_of(sample_identity())].bytes.pop_back();
  const std::optional<StoredEntry> found = cache.store.lookup(sample_identity());
  REQUIRE(found);
  CHECK_FALSE(found->writable_layer);
  CHECK(cache.store.damaged() == 1);
}

TEST_CASE("ADamagedEntryIsAMissAndIsReplaced", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  std::string& bytes = cache.env->files()[cache.store.path_of(sample_identity())].bytes;
  const std::string good = bytes;
  std::string newer = good;
  newer[8] = kEntryFormat + 1;
  const std::vector<std::pair<std::string, std::string>> cases{{"", "truncated"},
                                                               {good.substr(0, 60), "truncated"},
                                                               {good + "x", "truncated"},
                                                               {"#!/bin/sh\n", "not an entry"},
                                                               {newer, "newer format"}};
  for (const auto& [damage, text] : cases) {
    cache.env->files()[cache.store.path_of(sample_identity())].bytes = damage;
    Store store({.dir = kDir, .log = cache.log.callback()}, cache.env);
    const std::size_t said = cache.log.count(text);
    CHECK_FALSE(store.lookup(sample_identity()));
    CHECK_FALSE(store.lookup(sample_identity()));
    CHECK(store.damaged() == 2);
    CHECK(cache.log.count(text) == said + 1);
    REQUIRE(publishes(store, sample_entry()));
    CHECK(store.lookup(sample_identity()));
  }
}

TEST_CASE("OtherIdentityUnderTheRightNameIsAMiss", "[cache]") {
  MemCache cache;
  const Entry other = numbered_entry(1);
  REQUIRE(publishes(cache.store, other));
  cache.env->files()[cache.store.path_of(sample_identity())] =
      cache.env->files()[cache.store.path_of(other.identity)];
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  CHECK(cache.store.damaged() == 1);
  CHECK(cache.log.count("identity") == 1);
  std::size_t listed = 0;
  for (const ListedEntry& entry : test::list_all(cache.store))
    listed += entry.problem == "identity" ? 1 : 0;
  CHECK(listed == 1);
  REQUIRE(cache.store.gc());
  CHECK(test::list_all(cache.store).size() == 1);
}

TEST_CASE("ARejectedEntryIsPassedOver", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  const auto reject = [](const Entry&) { return std::optional<std::string>("made for sm_80"); };
  const auto accept = [](const Entry&) { return std::optional<std::string>(); };
  CHECK_FALSE(cache.store.lookup(sample_identity(), reject));
  CHECK(cache.store.damaged() == 1);
  CHECK(cache.log.count("made for sm_80") == 1);
  CHECK(cache.store.lookup(sample_identity(), accept));
}

TEST_CASE("WithoutAVersionTheHighestIsFound", "[cache]") {
  MemCache cache;
  CHECK(version_found(cache.store) == "none");
  for (const char* version : {"12.9.100", "9.2.1", "13.0.88"}) {
    REQUIRE(publishes(cache.store, entry_of_version(version)));
  }
  REQUIRE(publishes(cache.store, numbered_entry(1)));
  REQUIRE(publishes(cache.layer, entry_of_version("14.0.1")));
  CHECK(version_found(cache.store) == "13.0.88");

  cache.env->files()[cache.store.path_of(entry_of_version("13.0.88").identity)].bytes = "";
  CHECK(version_found(cache.store) == "12.9.100");
}

TEST_CASE("WithAVersionNoOtherIsFound", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.store, entry_of_version("12.9.100")));
  CHECK_FALSE(cache.store.lookup(sample_identity()));
}

TEST_CASE("SymbolicLinksLeadToEntries", "[cache]") {
  const TempDir temp;
  Store image({.dir = temp.path() + "/image"});
  REQUIRE(publishes(image, sample_entry()));
  REQUIRE(::symlink("image", (temp.path() + "/link").c_str()) == 0);
  Store store({.dir = temp.path() + "/cache", .layers = {temp.path() + "/link"}});
  CHECK(store.lookup(sample_identity()));
}

TEST_CASE("ThingsThatAreNoFilesAreMisses", "[cache]") {
  const TempDir temp;
  test::Log log;
  Store store({.dir = temp.path() + "/cache", .log = log.callback()});
  REQUIRE(publishes(store, numbered_entry(1)));
  const std::string path = store.path_of(sample_identity());
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(store.lookup(sample_identity()));
  CHECK(log.count("passed over") == 1);
  REQUIRE(publishes(store, sample_entry()));
  CHECK(store.lookup(sample_identity()));

  REQUIRE(::unlink(path.c_str()) == 0);
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  CHECK_FALSE(store.lookup(sample_identity()));
  CHECK_FALSE(store.publish(sample_entry()));
}

TEST_CASE("ListShowsEveryEntryOfEveryLayer", "[cache]") {
  MemCache cache;
  for (int n = 0; n < 3; ++n) REQUIRE(publishes(cache.store, numbered_entry(n)));
  REQUIRE(publishes(cache.layer, sample_entry()));
  cache.env->files()[cache.store.path_of(numbered_entry(1).identity)].bytes[50] ^= 1;
  cache.env->files()[kDir + "/entries/README"] = {"not ours", {}};

  const std::vector<ListedEntry> listed = test::list_all(cache.store);
  REQUIRE(listed.size() == 4);
  CHECK(listed[0].path < listed[1].path);
  CHECK(listed[1].path < listed[2].path);
  CHECK(listed[3].path == cache.layer.path_of(sample_identity()));
  CHECK(listed[3].entry == sample_entry());
  CHECK(listed[3].bytes == encoded_bytes(sample_entry()));
  CHECK(listed[3].last_used_unix == cache.env->now / kSecond);
  for (const ListedEntry& entry : listed) {
    const bool damaged = entry.path == cache.store.path_of(numbered_entry(1).identity);
    CHECK(entry.problem == (damaged ? "checksum" : ""));
    CHECK(entry.entry.has_value() != damaged);
  }
  CHECK(cache.store.damaged() == 0);
}

TEST_CASE("KnownEntriesAreReadFromTheirFrontsAndOnce", "[cache]") {
  MemCache cache;
  constexpr int kEntries = 8;
  constexpr std::size_t kCubin = 1 << 20;
  std::set<std::string> expected;
  for (int n = 0; n < kEntries; ++n) {
    Entry entry = numbered_entry(n);
    entry.cubin.append(kCubin, 'x');
    Store& store = n % 2 == 0 ? cache.store : cache.layer;
    REQUIRE(publishes(store, entry));
    expected.insert(store.path_of(entry.identity));
  }
  Entry other = sample_entry();
  other.identity.kernel = "row";  // its files begin with the name of another kernel
  REQUIRE(publishes(cache.store, other));
  cache.env->bytes_read = 0;
  cache.env->opened = 0;

  const std::vector<KnownEntry> known = cache.store.known("row_scale");
  std::set<std::string> found;
  for (const KnownEntry& entry : known) {
    found.insert(entry.path);
    CHECK(entry.path.ends_with("/" + paths::entry_name(entry.identity)));
  }
  CHECK(found == expected);
  CHECK(cache.env->opened == kEntries);
  CHECK(cache.env->bytes_read < kEntries * 8192);

  cache.env->bytes_read = 0;
  CHECK(cache.store.known("row_scale").size() == kEntries);
  CHECK(cache.store.known("scale").empty());
  CHECK(cache.env->bytes_read == 0);

  // What is no identity of that name is none, and one that is gone is none either.
  cache.env->files()[*expected.begin()].bytes.resize(100);
  CHECK(Store({.dir = kDir, .layers = {kLayer}}, cache.env).known("row_scale").size() ==
        kEntries - 1);
  cache.env->files().erase(*expected.begin());
  CHECK(cache.store.known("row_scale").size() == kEntries - 1);
  CHECK(cache.env->opened == 2 * kEntries);
  CHECK(cache.store.damaged() == 0);
}

TEST_CASE("CheckWritableLeavesNothingBehind", "[cache]") {
  MemCache cache;
  CHECK(cache.store.check_writable().ok());
  CHECK(cache.env->files().empty());

  const TempDir temp;
  test::write_bytes(temp.path() + "/file", "");
  Store blocked({.dir = temp.path() + "/file/cache"});
  CHECK_FALSE(blocked.check_writable().ok());
  CHECK_FALSE(blocked.lookup(sample_identity()));
  CHECK_FALSE(blocked.publish(sample_entry()));
  CHECK_FALSE(blocked.lock(sample_identity()));
  CHECK(test::list_all(blocked).empty());
}

TEST_CASE("ThreadsShareAStore", "[cache]") {
  const TempDir temp;
  const std::uint64_t size = encoded_bytes(numbered_entry(0));
  Store store({.dir = temp.path() + "/cache", .limit_bytes = 3 * size});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const Entry entry = numbered_entry((t + i) % 5);
        const std::unique_ptr<MakeLock> lock = store.lock(entry.identity);
        const std::optional<StoredEntry> found = store.lookup(entry.identity);
        if (lock == nullptr || (found && !(found->entry == entry))) ++wrong;
        if (!found && !store.publish(entry)) ++wrong;
        if (i % 10 == 0 && !store.gc()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(store.damaged() == 0);
  CHECK(test::count_files(temp.path() + "/cache/tmp") == 0);
  CHECK(test::count_files(temp.path() + "/cache/locks") == 0);
}

}  // namespace
}  // namespace cubinery
