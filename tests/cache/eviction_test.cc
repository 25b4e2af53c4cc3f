// The limit is kept to without a look at each entry.
#include "cache/eviction.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "cache/paths.h"
#include "cache/store.h"
#include "tests/cache/mem_cache.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::kDir;
using test::kSecond;
using test::MemEnv;
using test::numbered_entry;
using test::publishes;

constexpr std::int64_t kNow = 1'700'000'000 * kSecond;

TEST_CASE("UsageIsWhatWasMeasuredAndWhatChangedSince", "[cache]") {
  CHECK(parse_usage("measured 1700000000 100\n", kNow) == 100);
  CHECK(parse_usage("measured 1700000000 100\n+20\n-5\n+0\n", kNow) == 115);
  CHECK(parse_usage("measured 1700000000 100\n-200\n+7\n", kNow) == 7);
  CHECK(parse_usage("measured 1699996400 100\n", kNow) == 100);
  CHECK(parse_usage("measured 1700003600 100\n", kNow) == 100);
  for (const char* text :
       {"", "+20\n", "measured", "measured 1700000000", "measured 1700000000 100",
        "measured 1700000000 100\n20\n", "measured 1700000000 100\n+20", "measured 1700000000 -1\n",
        "measured 1699996399 100\n", "measured 1700003601 100\n",
        "measured 1700000000 100\n+18446744073709551615\n", "measured 1700000000 100\n+x\n",
        "measured 9223372036854775807 100\n", "measured 1700000000 18446744073709551616\n"}) {
    INFO(text);
    CHECK_FALSE(parse_usage(text, kNow));
  }
  CHECK_FALSE(parse_usage("measured 1700000000 1\n" + std::string(Env::kMaxLogBytes, '+'), kNow));
}

// A directory of a limited size, and how often all of it was listed with sizes.
class Measuring : public MemEnv {
 public:
  std::error_code list(const std::string& dir, std::vector<DirEntry>* entries) override {
    measured += dir == paths::entries_dir(kDir) ? 1 : 0;
    return MemEnv::list(dir, entries);
  }
  int measured = 0;
};

std::size_t entries_in(MemEnv& env) {
  std::size_t count = 0;
  for (const auto& [path, file] : env.files()) count += path.ends_with(paths::kEntrySuffix) ? 1 : 0;
  return count;
}

TEST_CASE("AFullDirectoryIsNotMeasuredAtEachPublication", "[cache]") {
  const auto env = std::make_shared<Measuring>();
  const std::uint64_t size = encoded_bytes(numbered_entry(0));
  Store store({.dir = kDir, .limit_bytes = 5 * size}, env);
  for (int n = 0; n < 10; ++n) {
    env->now += kSecond;
    REQUIRE(publishes(store, numbered_entry(n)));
    CHECK(entries_in(*env) <= 5);
    CHECK(store.lookup(numbered_entry(n).identity));
  }
  CHECK(entries_in(*env) == 5);
  CHECK(env->measured == 2);  // when it was new, and when it was full
  for (int n = 5; n < 10; ++n) CHECK(store.lookup(numbered_entry(n).identity));
}

TEST_CASE("ManyProcessesKeepToOneLimit", "[cache]") {
  const auto env = std::make_shared<Measuring>();
  const std::uint64_t size = encoded_bytes(numbered_entry(0));
  const StoreOptions options{.dir = kDir, .limit_bytes = 4 * size};
  Store first(options, env);
  Store second(options, env);
  for (int n = 0; n < 10; ++n) {
    env->now += kSecond;
    REQUIRE(publishes(n % 2 == 0 ? first : second, numbered_entry(n)));
    CHECK(entries_in(*env) <= 4);
  }
  CHECK(entries_in(*env) == 4);
}

TEST_CASE("WhatIsSaidOfUsageMayBeWrong", "[cache]") {
  const auto env = std::make_shared<Measuring>();
  const std::uint64_t size = encoded_bytes(numbered_entry(0));
  Store store({.dir = kDir, .limit_bytes = 3 * size}, env);
  for (int n = 0; n < 3; ++n) REQUIRE(publishes(store, numbered_entry(n)));
  std::string& usage = env->files()[paths::usage_path(kDir)].bytes;
  SECTION("too much: nothing is removed that has room") {
    usage = "measured 1700000000 1000000000\n";
    env->files().erase(store.path_of(numbered_entry(0).identity));
    Store next({.dir = kDir, .limit_bytes = 3 * size}, env);
    REQUIRE(publishes(next, numbered_entry(3)));
    CHECK(entries_in(*env) == 3);
  }
  SECTION("nonsense") {
    usage = "nonsense";
    REQUIRE(publishes(store, numbered_entry(3)));
    CHECK(entries_in(*env) == 3);
  }
  SECTION("too little: for an hour") {
    usage = "measured 1700000000 0\n";
    REQUIRE(publishes(store, numbered_entry(3)));
    CHECK(entries_in(*env) == 4);
    env->now += 3601 * kSecond;
    REQUIRE(publishes(store, numbered_entry(4)));
    CHECK(entries_in(*env) == 3);
  }
}

TEST_CASE("UsageThatIsNoFileIsReplacedOrPassedOver", "[cache]") {
  const test::TempDir temp;
  const std::string dir = temp.path() + "/cache";
  const std::string usage = paths::usage_path(dir);
  const std::string elsewhere = temp.path() + "/elsewhere";
  const std::uint64_t size = encoded_bytes(numbered_entry(0));
  std::filesystem::create_directory(dir);
  test::write_bytes(elsewhere, "somebody's");
  SECTION("a link") { std::filesystem::create_symlink(elsewhere, usage); }
  SECTION("a pipe") { REQUIRE(::mkfifo(usage.c_str(), 0600) == 0); }
  SECTION("a directory") { std::filesystem::create_directory(usage); }
  SECTION("not ours to write") {
    test::write_bytes(usage, "measured 1 0\n");
    std::filesystem::permissions(usage, std::filesystem::perms::none);
  }
  Store store({.dir = dir, .limit_bytes = 3 * size});
  for (int n = 0; n < 6; ++n) {
    REQUIRE(publishes(store, numbered_entry(n)));
    CHECK(test::count_files(dir + "/entries") <= 3);
    CHECK(store.lookup(numbered_entry(n).identity));
  }
  CHECK(store.failed_writes() == 0);
  CHECK(test::read_bytes(elsewhere) == "somebody's");
  CHECK(test::count_files(dir + "/tmp") == 0);
}

}  // namespace
}  // namespace cubinery
