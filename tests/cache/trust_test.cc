// Directories and files that others could have written.
#include "cache/trust.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "cache/store.h"
#include "tests/cache/mem_cache.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::kDir;
using test::MemCache;
using test::MemEnv;
using test::numbered_entry;
using test::publishes;
using test::sample_entry;
using test::sample_identity;
using test::TempDir;

TEST_CASE("OtherPeoplesDirectoriesAreNotUsed", "[cache]") {
  struct Case {
    std::string dir;
    std::uint32_t owner;
    std::uint32_t mode;
    bool trusted;
  };
  const auto [dir, owner, mode, trusted] =
      GENERATE(Case{kDir, MemEnv::kUser, 0755, true}, Case{kDir, 0, 0755, true},
               Case{kDir, 1234, 0700, false}, Case{kDir, MemEnv::kUser, 0770, false},
               Case{kDir, MemEnv::kUser, 0702, false}, Case{kDir, 0, 01777, false},
               Case{kDir + "/entries", 1234, 0700, false},
               Case{kDir + "/entries", MemEnv::kUser, 0777, false});
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  cache.env->dirs()[dir].owner = owner;
  cache.env->dirs()[dir].mode = mode;
  INFO(dir << " of user " << owner << ", mode " << mode);

  CHECK(cache.store.check_trusted(kDir).ok() == trusted);
  CHECK(cache.store.lookup(sample_identity()).has_value() == trusted);
  CHECK(cache.store.lookup(sample_identity()).has_value() == trusted);
  CHECK(cache.log.count("nothing is loaded from /cache") == (trusted ? 0 : 1));
  CHECK(publishes(cache.store, numbered_entry(1)) == trusted);
  CHECK((cache.store.lock(sample_identity()) != nullptr) == trusted);
  CHECK(cache.store.gc().has_value() == trusted);
  CHECK(cache.store.check_writable().ok() == trusted);
  CHECK(test::list_all(cache.store).at(0).problem.empty() == trusted);

  Store trusting({.dir = kDir, .trust = {.everybody = true}}, cache.env);
  CHECK(trusting.lookup(sample_identity()));
  CHECK(publishes(trusting, numbered_entry(1)));
}

// With the umask 002, of which many systems make use.
TEST_CASE("AUsersPrivateGroupMayWrite", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  FileInfo& dir = cache.env->dirs()[kDir];
  dir.mode = 0775;
  dir.group = 1000;
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  cache.env->own_group = 1001;
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  cache.env->own_group = 1000;
  CHECK(cache.store.lookup(sample_identity()));
  dir.mode = 0777;
  CHECK_FALSE(cache.store.lookup(sample_identity()));
}

TEST_CASE("ThePrivateGroupOfAUserIsInTheDatabases", "[cache]") {
  if (::geteuid() != 0) {
    WARN("not root: cannot be another user");
    return;
  }
  CHECK_FALSE(posix_env()->private_group());
  const passwd* const daemon = ::getpwnam("daemon");  // with a group of its own everywhere
  if (daemon == nullptr) return;
  REQUIRE(::seteuid(daemon->pw_uid) == 0);
  const std::optional<std::uint32_t> group = posix_env()->private_group();
  REQUIRE(::seteuid(0) == 0);
  CHECK(group == daemon->pw_gid);
  REQUIRE(::seteuid(4'000'000) == 0);
  const std::optional<std::uint32_t> none = posix_env()->private_group();
  REQUIRE(::seteuid(0) == 0);
  CHECK_FALSE(none);
}

TEST_CASE("TemporariesAreNotWrittenWhereOthersCanWrite", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  cache.env->dirs()[kDir + "/tmp"].mode = 0777;
  CHECK_FALSE(cache.store.publish(sample_entry()));
  CHECK(cache.store.lookup(sample_identity()));
}

TEST_CASE("OtherPeoplesEntriesAreNotLoaded", "[cache]") {
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  FileInfo& info = cache.env->files()[cache.store.path_of(sample_identity())].info;
  info.owner = 1234;
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  info.owner = 0;
  CHECK(cache.store.lookup(sample_identity()));
  info.mode = 0666;
  CHECK_FALSE(cache.store.lookup(sample_identity()));
  CHECK(cache.store.damaged() == 2);
}

// Its name is in the list of no group's members.
TEST_CASE("AUserWhosePrimaryGroupItIsIsInAGroup", "[cache]") {
  const TempDir temp;
  const std::string file = temp.path() + "/passwd";
  std::ofstream(file) << "root:x:0:0::/root:/bin/sh\n"
                         "me:x:1000:1000::/home/me:/bin/sh\n"
                         "other:x:1001:1001::/home/other:/bin/sh\n";
  CHECK_FALSE(has_other_user(file, 1000, 1000));
  std::ofstream(file, std::ios::app) << "guest:x:1002:1000::/home/guest:/bin/sh\n";
  CHECK(has_other_user(file, 1000, 1000));
  CHECK_FALSE(has_other_user(file, 1001, 1001));
  CHECK_FALSE(has_other_user(temp.path() + "/absent", 1000, 1000));
}

TEST_CASE("RealOwnersAndModesAreSeen", "[cache]") {
  const TempDir temp;
  const std::string dir = temp.path() + "/cache";
  Store store({.dir = dir});
  REQUIRE(publishes(store, sample_entry()));
  REQUIRE(::chmod(dir.c_str(), 0777) == 0);
  CHECK_FALSE(store.lookup(sample_identity()));
  CHECK_FALSE(store.publish(sample_entry()));
  REQUIRE(::chmod(dir.c_str(), 0755) == 0);
  CHECK(store.lookup(sample_identity()));
  if (::geteuid() != 0) {
    WARN("not root: chown is not tested");
    return;
  }
  REQUIRE(::chown(dir.c_str(), 12345, 12345) == 0);
  CHECK_FALSE(store.lookup(sample_identity()));
  CHECK_FALSE(store.publish(sample_entry()));
  REQUIRE(::chown(dir.c_str(), 0, 0) == 0);
  REQUIRE(::chown(store.path_of(sample_identity()).c_str(), 12345, 12345) == 0);
  CHECK_FALSE(store.lookup(sample_identity()));
  REQUIRE(publishes(store, sample_entry()));
  CHECK(store.lookup(sample_identity()));
}

}  // namespace
}  // namespace cubinery
