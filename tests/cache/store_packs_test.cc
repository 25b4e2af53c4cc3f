// Packs as layers, exported and imported.
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "cache/pack.h"
#include "cache/paths.h"
#include "cache/store.h"
#include "tests/cache/fault_env.h"
#include "tests/cache/mem_cache.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::store_packs_test {
namespace {

using test::kDir;
using test::kLayer;
using test::MemCache;
using test::MemEnv;
using test::numbered_entry;
using test::publishes;
using test::sample_entry;
using test::sample_identity;
using test::TempDir;

const std::string kPack = "/out/pack";

bool all(const Identity&) { return true; }

std::optional<std::string> any(const Entry&) { return std::nullopt; }

// A directory with three entries, a pack of them, and a store that has the pack for a layer.
struct PackedCache {
  std::shared_ptr<MemEnv> env = std::make_shared<MemEnv>();
  test::Log log;
  Store source{{.dir = "/source"}, env};
  Store store{{.dir = kDir, .layers = {kPack}, .log = log.callback()}, env};

  PackedCache() {
    env->make_dirs("/out");
    for (int n = 0; n < 3; ++n) REQUIRE(publishes(source, numbered_entry(n)));
    REQUIRE(source.export_pack(kPack, all, any));
  }

  std::string& bytes() { return env->files()[kPack].bytes; }
  // Damages the entry in the pack.
  void damage(const Entry& entry) {
    std::string& whole = bytes();
    const std::size_t at = whole.find(encode_entry(entry));
    REQUIRE(at != whole.npos);
    whole[at + 40] ^= 1;
  }
  // What a new store finds of the three.
  std::set<int> found() {
    Store fresh({.layers = {kPack}, .log = log.callback()}, env);
    std::set<int> numbers;
    for (int n = 0; n < 3; ++n) {
      const std::optional<StoredEntry> entry = fresh.lookup(numbered_entry(n).identity);
      if (entry) CHECK(entry->entry == numbered_entry(n));
      if (entry) numbers.insert(n);
    }
    return numbers;
  }
};

TEST_CASE("APackIsALayer", "[cache]") {
  PackedCache cache;
  const std::optional<StoredEntry> found = cache.store.lookup(numbered_entry(1).identity);
  REQUIRE(found);
  CHECK(found->entry == numbered_entry(1));
  CHECK_FALSE(found->writable_layer);
  CHECK(found->path == kPack + "/" + paths::entry_name(numbered_entry(1).identity));
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  CHECK_FALSE(cache.store.lookup(test::entry_of_version("12.9.1").identity));
  CHECK(cache.store.damaged() == 0);

  Identity any_version = numbered_entry(2).identity;
  any_version.nvrtc.clear();
  CHECK(cache.store.lookup(any_version));
  // The writable directory comes first.
  REQUIRE(publishes(cache.store, numbered_entry(1)));
  CHECK(cache.store.lookup(numbered_entry(1).identity)->writable_layer);
}

TEST_CASE("ALookupExaminesNoLayerBehindTheOneThatAnswers", "[cache]") {
  PackedCache cache;
  Store store({.dir = kDir, .layers = {kLayer, kPack}}, cache.env);
  Store layer({.dir = kLayer}, cache.env);
  REQUIRE(publishes(store, sample_entry()));
  REQUIRE(publishes(layer, sample_entry()));
  REQUIRE(publishes(layer, numbered_entry(0)));
  const auto examined = [&](const Entry& entry) {
    cache.env->examined.clear();
    cache.env->opened = 0;
    REQUIRE(store.lookup(entry.identity));
    std::set<std::string> layers;
    for (const std::string& path : {kDir, kLayer, kPack}) {
      if (cache.env->examined.contains(path)) layers.insert(path);
    }
    CHECK(cache.env->opened == (layers.contains(kPack) ? 1 : 0));
    return layers;
  };
  CHECK(examined(sample_entry()) == std::set{kDir});
  CHECK(examined(numbered_entry(0)) == std::set{kDir, kLayer});
  CHECK(examined(numbered_entry(1)) == std::set{kDir, kLayer, kPack});
}

TEST_CASE("APackIsOpenedOncePerStore", "[cache]") {
  PackedCache cache;
  cache.env->opened = 0;
  for (int i = 0; i < 5; ++i) REQUIRE(cache.store.lookup(numbered_entry(0).identity));
  CHECK(cache.store.known("row_scale").size() == 3);
  CHECK(test::list_all(cache.store).size() == 3);
  CHECK(cache.env->opened == 1);
}

TEST_CASE("APackThatIsReplacedStaysWhatItWas", "[cache]") {
  const TempDir temp;
  const std::string path = temp.path() + "/pack";
  Store first({.dir = temp.path() + "/first"});
  Store second({.dir = temp.path() + "/second"});
  REQUIRE(publishes(first, numbered_entry(1)));
  REQUIRE(publishes(second, numbered_entry(2)));
  REQUIRE(first.export_pack(path, all, any));
  Store store({.layers = {path}});
  REQUIRE(store.lookup(numbered_entry(1).identity));

  REQUIRE(second.export_pack(path, all, any));
  CHECK(store.lookup(numbered_entry(1).identity));
  CHECK_FALSE(store.lookup(numbered_entry(2).identity));
  Store next({.layers = {path}});
  CHECK_FALSE(next.lookup(numbered_entry(1).identity));
  REQUIRE(next.lookup(numbered_entry(2).identity));

  // Written into, as cp does: neither the old entry nor the new one.
  const std::string bytes = test::read_bytes(path);
  REQUIRE(first.export_pack(temp.path() + "/other", all, any));
  test::write_bytes(path, test::read_bytes(temp.path() + "/other"));
  CHECK_FALSE(next.lookup(numbered_entry(1).identity));
  CHECK_FALSE(next.lookup(numbered_entry(2).identity));
  CHECK(next.damaged() == 1);
  test::write_bytes(path, bytes.substr(0, bytes.size() / 2));
  CHECK_FALSE(next.lookup(numbered_entry(2).identity));
  test::write_bytes(path, bytes);
  CHECK(next.lookup(numbered_entry(2).identity));
}

// A pack of two entries that a store has open; then another machine puts a pack of the second and a
// third in its place, on a file system that keeps nothing of the first.
struct ReplacedPack {
  std::shared_ptr<MemEnv> disk = std::make_shared<MemEnv>();
  std::shared_ptr<test::FaultEnv> env = std::make_shared<test::FaultEnv>(disk);
  test::Log log;
  Store old_source{{.dir = "/old"}, disk};
  Store new_source{{.dir = "/new"}, disk};
  Store store{{.dir = kDir, .layers = {kPack}, .log = log.callback()}, env};

  ReplacedPack() {
    disk->make_dirs("/out");
    REQUIRE(publishes(old_source, test::entry_of_version("12.9.1")));
    for (const int n : {0, 1}) REQUIRE(publishes(old_source, numbered_entry(n)));
    REQUIRE(publishes(new_source, test::entry_of_version("13.0.88")));
    for (const int n : {1, 2}) REQUIRE(publishes(new_source, numbered_entry(n)));
    REQUIRE(old_source.export_pack(kPack, all, any));
    REQUIRE(store.lookup(numbered_entry(0).identity));
    replace();
  }

  void replace() {
    REQUIRE(new_source.export_pack(kPack, all, any));
    env->make_open_files_stale();
  }

  bool has(int n) {
    const std::optional<StoredEntry> found = store.lookup(numbered_entry(n).identity);
    if (found) CHECK(found->entry == numbered_entry(n));
    return found.has_value();
  }
};

TEST_CASE("APackThatWentStaleIsOpenedAgain", "[cache]") {
  ReplacedPack cache;
  SECTION("an entry that both have") { CHECK(cache.has(1)); }
  SECTION("one that only the new one has") {
    // Nothing has been read of the old one yet that could tell.
    CHECK(cache.has(1));
    CHECK(cache.has(2));
    CHECK_FALSE(cache.has(0));
  }
  SECTION("any version") {
    Identity any_version = sample_identity();
    any_version.nvrtc.clear();
    const std::optional<StoredEntry> found = cache.store.lookup(any_version);
    REQUIRE(found);
    CHECK(found->entry.identity.nvrtc == "13.0.88");
  }
  SECTION("what is known") {
    CHECK(cache.store.known("").size() == 1);  // of the old index what the new pack has, too
    CHECK(cache.store.known("").size() == 3);
  }
  SECTION("again and again") {
    for (int i = 0; i < 5; ++i) {
      CHECK(cache.has(1));
      cache.replace();
    }
    CHECK(cache.has(2));
  }
  SECTION("export") {
    const Result<ExportResult> exported = cache.store.export_pack("/out/other", all, any);
    REQUIRE(exported);
    CHECK(exported->unusable == 0);
  }
  CHECK(cache.log.count("") == 0);
  CHECK(cache.store.damaged() == 0);
  // Once, and not for each entry.
  const std::size_t opened = cache.disk->opened;
  for (int i = 0; i < 5; ++i) CHECK(cache.has(1));
  CHECK(cache.disk->opened <= opened + 1);
}

TEST_CASE("AStalePackThatOthersNowOwnIsNotOpenedAgain", "[cache]") {
  ReplacedPack cache;
  cache.disk->files()[kPack].info.owner = MemEnv::kUser + 1;
  CHECK_FALSE(cache.has(1));
  CHECK(cache.log.count("belongs to user") == 1);
}

TEST_CASE("APackThatGoesStaleWhileItIsImportedIsReadOn", "[cache]") {
  ReplacedPack cache;
  // After its index, before its entries.
  class StaleOnce : public test::FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    std::error_code make_dirs(const std::string& dir) override {
      if (!done_) make_open_files_stale();
      done_ = true;
      return FaultEnv::make_dirs(dir);
    }

   private:
    bool done_ = false;
  };
  Store store({.dir = "/third"}, std::make_shared<StaleOnce>(cache.disk));
  const Result<ImportResult> imported = store.import_pack(kPack, any);
  REQUIRE(imported);
  CHECK(imported->imported == 3);
  CHECK(imported->damaged == 0);
}

TEST_CASE("ADamagedEntryOfAPackIsMissing", "[cache]") {
  PackedCache cache;
  cache.damage(numbered_entry(1));
  CHECK(cache.found() == std::set<int>{0, 2});
  CHECK(cache.log.count("passed over " + kPack + "/row_scale-") == 1);

  const std::vector<ListedEntry> listed = test::list_all(cache.store);
  REQUIRE(listed.size() == 3);
  std::size_t bad = 0;
  for (const ListedEntry& entry : listed) {
    CHECK(entry.path.starts_with(kPack + "/"));
    CHECK(entry.entry.has_value() == entry.problem.empty());
    bad += entry.problem == "checksum" ? 1 : 0;
  }
  CHECK(bad == 1);
}

TEST_CASE("APackWithADamagedIndexIsSkippedWithOneWarning", "[cache]") {
  PackedCache cache;
  SECTION("flipped") { cache.bytes()[30] ^= 1; }
  SECTION("truncated") { cache.bytes().pop_back(); }
  SECTION("not a pack") { cache.bytes() = "#!/bin/sh\n"; }
  SECTION("empty") { cache.bytes().clear(); }
  for (int i = 0; i < 3; ++i) CHECK_FALSE(cache.store.lookup(numbered_entry(0).identity));
  CHECK(cache.log.count("nothing is loaded from " + kPack) == 1);
  const std::vector<ListedEntry> listed = test::list_all(cache.store);
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].path == kPack);
  CHECK(listed[0].bytes == cache.bytes().size());
  CHECK_FALSE(listed[0].problem.empty());
  CHECK_FALSE(listed[0].entry);
  // A good one is used as soon as it is there.
  REQUIRE(cache.source.check_writable().ok());
  cache.env->files().erase(kPack);
  REQUIRE(cache.source.export_pack(kPack, all, any));
  CHECK(cache.store.lookup(numbered_entry(0).identity));
}

TEST_CASE("OtherPeoplesPacksAreNotUsed", "[cache]") {
  PackedCache cache;
  FileInfo& info = cache.env->files()[kPack].info;
  SECTION("another owner") { info.owner = 1234; }
  SECTION("others can write") { info.mode = 0646; }
  CHECK(cache.found().empty());
  CHECK(cache.log.count("nothing is loaded from " + kPack) == 1);
  for (const ListedEntry& listed : test::list_all(cache.store)) CHECK_FALSE(listed.problem.empty());
  CHECK_FALSE(cache.store.import_pack(kPack, any));
  Store trusting({.dir = kDir, .layers = {kPack}, .trust = {.everybody = true}}, cache.env);
  CHECK(trusting.lookup(numbered_entry(0).identity));
  CHECK(trusting.import_pack(kPack, any));
}

TEST_CASE("ExportTakesWhatIsWantedOfEveryLayer", "[cache]") {
  MemCache cache;
  cache.env->make_dirs("/out");
  REQUIRE(publishes(cache.store, numbered_entry(0)));
  REQUIRE(publishes(cache.store, numbered_entry(1)));
  REQUIRE(publishes(cache.layer, numbered_entry(2)));
  Entry elsewhere = numbered_entry(1);
  elsewhere.metadata = "{}";
  REQUIRE(publishes(cache.layer, elsewhere));
  const auto wanted = [](const Identity& identity) {
    return identity != numbered_entry(0).identity;
  };
  const Result<ExportResult> result = cache.store.export_pack(kPack, wanted, any);
  REQUIRE(result);
  CHECK(result->entries == 2);
  CHECK(result->unusable == 0);
  CHECK(result->bytes == cache.env->files()[kPack].bytes.size());
  Store store({.layers = {kPack}}, cache.env);
  CHECK_FALSE(store.lookup(numbered_entry(0).identity));
  REQUIRE(store.lookup(numbered_entry(1).identity));
  CHECK(store.lookup(numbered_entry(1).identity)->entry == numbered_entry(1));
  CHECK(store.lookup(numbered_entry(2).identity));
  // A pack of a pack is the same.
  const std::string bytes = cache.env->files()[kPack].bytes;
  REQUIRE(store.export_pack("/out/copy", all, any));
  CHECK(cache.env->files()["/out/copy"].bytes == bytes);
  CHECK(cache.env->files().size() == 8);  // two of usage, and no temporary
}

TEST_CASE("ExportPassesOverWhatCannotBeUsed", "[cache]") {
  MemCache cache;
  cache.env->make_dirs("/out");
  for (int n = 0; n < 3; ++n) REQUIRE(publishes(cache.store, numbered_entry(n)));
  cache.env->files()[cache.store.path_of(numbered_entry(0).identity)].bytes.pop_back();
  const auto accept = [](const Entry& entry) -> std::optional<std::string> {
    if (entry == numbered_entry(1)) return "made for sm_80";
    return std::nullopt;
  };
  const Result<ExportResult> result = cache.store.export_pack(kPack, all, accept);
  REQUIRE(result);
  CHECK(result->entries == 1);
  CHECK(result->unusable == 2);
  CHECK(cache.log.count("truncated") == 1);
  CHECK(cache.log.count("made for sm_80") == 1);
}

TEST_CASE("ALayerThatCannotBeExportedIsAnError", "[cache]") {
  PackedCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  SECTION("another owner") { cache.env->files()[kPack].info.owner = 1234; }
  SECTION("damaged") { cache.bytes().pop_back(); }
  const Result<ExportResult> result = cache.store.export_pack("/out/other", all, any);
  REQUIRE_FALSE(result);
  CHECK(result.error().code() == Code::kIo);
  CHECK(result.error().message().starts_with("nothing can be exported from " + kPack + ": "));
  CHECK_FALSE(cache.env->files().contains("/out/other"));
}

TEST_CASE("AnEmptyPackIsNotWritten", "[cache]") {
  MemCache cache;
  cache.env->make_dirs("/out");
  Result<ExportResult> result = cache.store.export_pack(kPack, all, any);
  REQUIRE_FALSE(result);
  CHECK(result.error().code() == Code::kInvalidArgument);
  REQUIRE(publishes(cache.store, sample_entry()));
  result = cache.store.export_pack(
      kPack, [](const Identity&) { return false; }, any);
  REQUIRE_FALSE(result);
  CHECK(result.error().message() == "no entry to be exported: 1 are others, 0 cannot be used");
  CHECK_FALSE(cache.env->files().contains(kPack));
}

TEST_CASE("ExportReplacesPacksOnly", "[cache]") {
  const TempDir temp;
  const std::string path = temp.path() + "/pack";
  Store store({.dir = temp.path() + "/cache"});
  REQUIRE(publishes(store, sample_entry()));
  test::write_bytes(path, "{\"model_type\": \"qwen3_next\"}");
  const Result<ExportResult> refused = store.export_pack(path, all, any);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::kInvalidArgument);
  CHECK(refused.error().message().find("is not a pack; accepted: ") != std::string_view::npos);
  CHECK(test::read_bytes(path).starts_with("{"));
  CHECK_FALSE(store.export_pack(temp.path() + "/cache", all, any));
  CHECK_FALSE(store.export_pack(temp.path() + "/absent/pack", all, any));

  test::write_bytes(path, "");  // mktemp
  REQUIRE(store.export_pack(path, all, any));
  const std::string bytes = test::read_bytes(path);
  test::write_bytes(path, bytes.substr(0, 20));
  REQUIRE(store.export_pack(path, all, any));
  CHECK(test::read_bytes(path) == bytes);
  CHECK(test::count_files(temp.path()) == 2);
}

TEST_CASE("ImportPublishesWhatIsMissing", "[cache]") {
  PackedCache cache;
  REQUIRE(publishes(cache.store, numbered_entry(0)));
  cache.damage(numbered_entry(1));
  Result<ImportResult> result = cache.store.import_pack(kPack, any);
  REQUIRE(result);
  CHECK(result->imported == 1);
  CHECK(result->present == 1);
  CHECK(result->damaged == 1);
  CHECK(cache.log.count("passed over " + kPack + "/") == 1);
  CHECK(cache.env->files()[cache.store.path_of(numbered_entry(2).identity)].bytes ==
        encode_entry(numbered_entry(2)));

  // A damaged entry of the directory is none.
  cache.env->files()[cache.store.path_of(numbered_entry(0).identity)].bytes.pop_back();
  result = cache.store.import_pack(kPack, any);
  REQUIRE(result);
  CHECK(result->imported == 1);
  CHECK(result->present == 1);
  const auto reject = [](const Entry&) { return std::optional<std::string>("made for sm_80"); };
  CHECK(cache.store.import_pack(kPack, reject)->damaged == 3);
}

TEST_CASE("WhatIsImportedIsNotTheNextToGo", "[cache]") {
  PackedCache cache;
  REQUIRE(publishes(cache.store, numbered_entry(0)));
  cache.env->now += 10000 * test::kSecond;
  REQUIRE(cache.store.import_pack(kPack, any));
  const std::string path = cache.store.path_of(numbered_entry(0).identity);
  CHECK(cache.env->files()[path].info.mtime_ns == cache.env->now);
}

// By entries that another machine, whose clock is ahead, has just used.
TEST_CASE("ImportCountsWhatTheLimitEvictsAtOnce", "[cache]") {
  PackedCache cache;
  const std::uint64_t size = encode_entry(numbered_entry(0)).size();
  Store store({.dir = kDir, .limit_bytes = cache.bytes().size() + size}, cache.env);
  CHECK(store.import_pack(kPack, any)->evicted == 0);
  REQUIRE(store.gc(0));
  cache.env->now += 1000 * test::kSecond;
  for (int n = 3; n < 5; ++n) REQUIRE(publishes(store, numbered_entry(n)));
  cache.env->now -= 500 * test::kSecond;
  const Result<ImportResult> result = store.import_pack(kPack, any);
  REQUIRE(result);
  CHECK(result->imported == 3);
  std::uint64_t left = 0;
  for (int n = 0; n < 3; ++n) left += store.lookup(numbered_entry(n).identity) ? 1 : 0;
  CHECK(result->evicted == 3 - left);
  CHECK(result->evicted > 0);
}

TEST_CASE("ImportSaysWhatIsInTheWay", "[cache]") {
  PackedCache cache;
  const auto message = [&](Store& store, const std::string& path) {
    const Result<ImportResult> result = store.import_pack(path, any);
    REQUIRE_FALSE(result);
    return std::string(result.error().message());
  };
  CHECK(message(cache.store, "/out/absent") == "/out/absent: no such pack");
  CHECK(message(cache.store, "/source") == "/source: no such pack");
  Store small({.dir = kDir, .limit_bytes = 100}, cache.env);
  CHECK(message(small, kPack).find("raise the limit") != std::string::npos);
  Store none({}, cache.env);
  CHECK(message(none, kPack) == "cache: there is no writable directory");
  cache.env->sync_fails = true;
  CHECK(message(cache.store, kPack).starts_with("cannot write "));
  cache.env->sync_fails = false;
  cache.bytes()[8] = kPackFormat + 1;
  CHECK(message(cache.store, kPack) == "nothing is imported from " + kPack + ": newer format");
}

TEST_CASE("AStoredEntryIsReadByItsPath", "[cache]") {
  const TempDir temp;
  const std::string pack = temp.path() + "/pack";
  Store store({.dir = temp.path() + "/cache"});
  const Result<std::string> path = store.publish(sample_entry());
  REQUIRE(path);
  REQUIRE(store.export_pack(pack, all, any));
  const auto env = posix_env();
  const std::string name = paths::entry_name(sample_identity());
  CHECK(read_stored_entry(*env, *path, {}).entry == sample_entry());
  CHECK(read_stored_entry(*env, pack + "/" + name, {}).entry == sample_entry());
  const EntryFile absent = read_stored_entry(*env, pack + "/x" + name, {});
  CHECK_FALSE(absent.entry);
  CHECK(absent.trouble.empty());
  test::write_bytes(pack, "no pack");
  CHECK(read_stored_entry(*env, pack + "/" + name, {}).trouble == "not a pack");
}

}  // namespace
}  // namespace cubinery::store_packs_test
