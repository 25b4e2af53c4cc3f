// Entries are found in lists of names, never by asking for their paths.
#include "cache/names.h"

#include <atomic>
#include <cerrno>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cache/paths.h"
#include "cache/store.h"
#include "tests/cache/mem_cache.h"
#include "tests/cache/system_calls.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::entry_of_version;
using test::kDir;
using test::kLayer;
using test::MemCache;
using test::MemEnv;
using test::numbered_entry;
using test::publishes;
using test::sample_entry;
using test::sample_identity;
using test::TempDir;

// A client of a network file system that remembers for ever which paths were not there.
class ForgetfulOfNews : public MemEnv {
 public:
  std::error_code read(const std::string& path, std::string* bytes, FileInfo* info) override {
    return remembered(path, MemEnv::read(path, bytes, info));
  }
  std::error_code open(const std::string& path, std::unique_ptr<OpenFile>* file) override {
    return remembered(path, MemEnv::open(path, file));
  }

  std::set<std::string> missed;

 private:
  std::error_code remembered(const std::string& path, std::error_code error) {
    if (missed.contains(path)) return test::error_of(std::errc::no_such_file_or_directory);
    if (is_absent(error)) missed.insert(path);
    return error;
  }
};

TEST_CASE("AMissIsNeverAskedForByItsPath", "[cache]") {
  const auto env = std::make_shared<ForgetfulOfNews>();
  Store store({.dir = kDir, .layers = {kLayer}}, env);
  Store other({.dir = kDir}, env);
  Identity any_version = sample_identity();
  any_version.nvrtc.clear();
  REQUIRE_FALSE(store.lookup(sample_identity()));
  REQUIRE_FALSE(store.lookup(any_version));
  CHECK(store.known("row_scale").empty());
  const std::unique_ptr<MakeLock> lock = store.lock(sample_identity());
  REQUIRE_FALSE(store.lookup(sample_identity()));
  REQUIRE(publishes(other, sample_entry()));
  CHECK(store.lookup(sample_identity()));
  CHECK(store.lookup(any_version));
  for (const std::string& path : env->missed) CHECK_FALSE(path.ends_with(paths::kEntrySuffix));
}

TEST_CASE("ManyLookupsShareAList", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  for (int n = 0; n < 5; ++n) REQUIRE(publishes(cache.layer, numbered_entry(n)));
  const Names::Moment since = cache.store.now();
  const auto look_up = [&](int n) {
    return cache.store.lookup_since(since, numbered_entry(n).identity, nullptr).has_value();
  };
  cache.env->listed = 0;
  for (int n = 0; n < 5; ++n) CHECK(look_up(n));
  for (int n = 5; n < 9; ++n) CHECK_FALSE(look_up(n));
  CHECK(cache.env->listed == 2);  // the writable directory, and the layer

  // Nor do hits, whatever the moment; what is missing is missing at `since`.
  const Names::Moment later = cache.store.now();
  for (int n = 0; n < 5; ++n) {
    CHECK(cache.store.lookup_since(later, numbered_entry(n).identity, nullptr));
  }
  CHECK(cache.env->listed == 3);  // the directory before the layer that answers, once for all five
  REQUIRE(publishes(cache.layer, numbered_entry(5)));
  CHECK_FALSE(look_up(5));
  CHECK(cache.store.lookup(numbered_entry(5).identity));
  // What is gone is not in a list for ever.
  cache.env->files().erase(cache.layer.path_of(numbered_entry(0).identity));
  CHECK_FALSE(cache.store.lookup(numbered_entry(0).identity));
}

TEST_CASE("ThreadsThatWaitForAListShareIt", "[cache]") {
  const TempDir temp;
  Store store({.dir = temp.path()});
  REQUIRE(publishes(store, sample_entry()));
  std::atomic<int> missing{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        if (!store.lookup(sample_identity())) ++missing;
        if (store.lookup(numbered_entry(1).identity)) ++missing;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(missing == 0);
}

TEST_CASE("ADirectoryThatMayNotBeListedIsSearched", "[cache]") {
  class NoLists : public MemEnv {
   public:
    std::error_code list_names(const std::string&, std::vector<std::string>*) override {
      return test::error_of(std::errc::permission_denied);
    }
  };
  const auto env = std::make_shared<NoLists>();
  Store store({.dir = kDir}, env);
  REQUIRE(publishes(store, sample_entry()));
  CHECK(store.lookup(sample_identity()));
  CHECK_FALSE(store.lookup(numbered_entry(1).identity));
  CHECK(store.damaged() == 0);
}

TEST_CASE("AGoodEntryStays", "[cache]") {
  MemCache cache;
  Entry first = sample_entry();
  first.cubin += "first";
  REQUIRE(publishes(cache.store, first));
  REQUIRE(publishes(cache.store, sample_entry()));
  CHECK(cache.store.lookup(sample_identity())->entry == first);
  for (const auto& [path, file] : cache.env->files()) CHECK_FALSE(path.ends_with(".tmp"));

  // Not one that a caller rejects, or that is damaged.
  const AcceptEntry reject = [](const Entry&) { return "no"; };
  REQUIRE(cache.store.publish(sample_entry(), reject));
  CHECK(cache.store.lookup(sample_identity())->entry == sample_entry());
  cache.env->files()[cache.store.path_of(sample_identity())].bytes.resize(50);
  REQUIRE(publishes(cache.store, first));
  CHECK(cache.store.lookup(sample_identity())->entry == first);
}

// Network file systems do not know the flag that keeps a rename from replacing.
TEST_CASE("WithoutTheFlagALinkKeepsTheGoodEntry", "[cache]") {
  const auto published = [](const Entry& there, const Entry& entry) {
    const TempDir temp;
    Store store({.dir = temp.path()});
    REQUIRE(publishes(store, there));
    std::string hit;
    for (int at = 0; hit != "renameat2"; ++at) {
      Store fresh({.dir = temp.path()});
      const test::SystemCalls calls(at, EINVAL);
      const bool is_published = publishes(fresh, entry);
      hit = calls.hit();
      REQUIRE_FALSE(hit.empty());
      if (hit == "renameat2") REQUIRE(is_published);
    }
    CHECK(test::count_files(temp.path() + "/tmp") == 0);
    return store.lookup(entry.identity)->entry;
  };
  Entry first = sample_entry();
  first.cubin += "first";
  CHECK(published(first, sample_entry()) == first);
  CHECK(published(numbered_entry(1), sample_entry()) == sample_entry());
}

// The system calls of publishing one more entry beside `count`, and of finding it.
std::pair<int, int> calls_beside(int count) {
  const TempDir temp;
  Store store({.dir = temp.path()});
  REQUIRE(publishes(store, sample_entry()));
  const std::string bytes = encode_entry(sample_entry());
  for (int n = 0; n < count; ++n) {
    Entry entry = sample_entry();
    entry.identity.key += std::to_string(n);
    test::write_bytes(store.path_of(entry.identity), encode_entry(entry));
  }
  std::pair<int, int> calls;
  Store fresh({.dir = temp.path()});
  REQUIRE(publishes(fresh, numbered_entry(0)));  // a process that publishes at all
  {
    const test::SystemCalls counter;
    REQUIRE(fresh.publish(numbered_entry(1)));
    calls.first = counter.count();
  }
  {
    const test::SystemCalls counter;
    REQUIRE(fresh.lookup(numbered_entry(1).identity));
    calls.second = counter.count();
  }
  return calls;
}

TEST_CASE("APublicationTakesAsManyCallsBesideMany", "[cache]") {
  const std::pair<int, int> few = calls_beside(1);
  const std::pair<int, int> many = calls_beside(500);
  CHECK(few.first <= 20);
  CHECK(many.first == few.first);
  CHECK(many.second == few.second + 499);  // one readdir() a name
}

}  // namespace
}  // namespace cubinery
