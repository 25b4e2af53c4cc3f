// Directories and files that others could have written.
#include "cache/trust.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "cache/paths.h"
#include "cache/store.h"
#include "runtime/jit/options_text.h"
#include "tests/cache/child.h"
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

TEST_CASE("TrustIsReadAsItIsWritten", "[cache]") {
  const std::string text =
      GENERATE("", "uid:65534", "gid:2000", "uid:65534,uid:7,gid:0,gid:4294967294", "all");
  const std::optional<Trust> trust = parse_trust(text);
  REQUIRE(trust);
  CHECK(to_text(*trust) == text);
  CHECK(trust->everybody == (text == "all"));
}

TEST_CASE("WhatIsNoTrustIsRefused", "[cache]") {
  const std::string text = GENERATE(
      "x", "ALL", "none", "65534", "uid:", "uid:-1", "uid:+1", "uid: 1", "uid:0x1", "uid:1 ",
      " uid:1", "gid:4294967295", "gid:4294967296", "uid:1,", ",uid:1", "uid:1,,gid:2", ",",
      "uid:1:2", "uid:nobody", "uid:1;gid:2", "all,x", "UID:1", "gid:99999999999999999999");
  INFO(text);
  CHECK_FALSE(parse_trust(text));
}

TEST_CASE("TrustedByNameIsWhoIsNamed", "[cache]") {
  constexpr std::uint32_t kOther = 65534;
  struct Case {
    std::string trust;
    std::uint32_t owner, group, mode;
    std::string remedy;  // empty: it is trusted
  };
  const Case a = GENERATE(values<Case>({
      {"", kOther, 9, 0755, "CUBINERY_TRUST=uid:65534 "},
      {"uid:65534", kOther, 9, 0755, ""},
      {"uid:65533", kOther, 9, 0755, "CUBINERY_TRUST=uid:65533,uid:65534 "},
      {"uid:65534", kOther, 9, 0775, "CUBINERY_TRUST=uid:65534,gid:9 "},
      {"uid:65534,gid:9", kOther, 9, 0775, ""},
      {"uid:65534,gid:9", kOther, 9, 0777, "CUBINERY_TRUST=all"},
      {"", 0, 2000, 02775, "CUBINERY_TRUST=gid:2000 "},
      {"gid:2000", 0, 2000, 02775, ""},
      {"gid:2000", MemEnv::kUser, 2000, 02770, ""},
      {"gid:2000", 0, 2001, 02775, "CUBINERY_TRUST=gid:2000,gid:2001 "},
      {"", kOther, 2000, 02775, "CUBINERY_TRUST=gid:2000 "},
      // Of a member of the group, who alone could give it that group.
      {"gid:2000", kOther, 2000, 02775, ""},
      {"gid:2000", kOther, 2000, 0755, ""},
      {"gid:2000", kOther, 2001, 0755, "CUBINERY_TRUST=uid:65534,gid:2000 "},
      {"gid:2000", kOther, 2000, 02777, "CUBINERY_TRUST=all"},
      {"all", kOther, 9, 0777, ""},
  }));
  INFO(a.trust << ": user " << a.owner << ", group " << a.group << ", mode " << a.mode);
  MemCache cache;
  REQUIRE(publishes(cache.store, sample_entry()));
  const std::string place = kDir + GENERATE(as<std::string>(), "", "/entries");
  FileInfo& info = cache.env->dirs()[place];
  info = {.kind = FileKind::kDirectory, .owner = a.owner, .group = a.group, .mode = a.mode};
  Store store({.dir = kDir, .trust = parse_trust(a.trust).value()}, cache.env);
  const std::string refusal(store.check_trusted(kDir).message());
  CHECK(store.lookup(sample_identity()).has_value() == a.remedy.empty());
  CHECK(publishes(store, numbered_entry(1)) == a.remedy.empty());
  if (a.remedy.empty()) {
    CHECK(refusal.empty());
  } else {
    CHECK(refusal.starts_with(place + " "));
    CHECK((refusal + " ").find(a.remedy) != refusal.npos);
  }
}

// In a directory that everybody can write and that hands on its group, anybody's files have it.
TEST_CASE("AGroupThatAnybodyCanGiveSaysNothing", "[cache]") {
  const auto [group, mode, is_own] = GENERATE(table<std::uint32_t, std::uint32_t, bool>(
      {{2000, 03777, false}, {2000, 02775, true}, {0, 01777, true}, {2000, 02777, false}}));
  MemCache cache;
  const Trust trust{.groups = {2000}};
  auto& dirs = cache.env->dirs();
  const auto dir = [](std::uint32_t owner, std::uint32_t of, std::uint32_t bits) {
    return FileInfo{.kind = FileKind::kDirectory, .owner = owner, .group = of, .mode = bits};
  };
  dirs["/shared"] = dir(0, group, mode);
  dirs["/shared/x"] = dir(1234, 2000, 02755);
  dirs["/shared/x/cache"] = dir(1234, 2000, 02755);
  CHECK(check_owner(*cache.env, "/shared/x", trust).ok() == is_own);
  CHECK(check_owner(*cache.env, "/shared/x/cache", trust).ok() == is_own);
}

TEST_CASE("WhatIsMadeInATrustedGroupsFolderIsTheGroups", "[cache]") {
  struct Case {
    std::string trust;
    std::uint32_t mode, dir_mode, file_mode;
  };
  const Case a = GENERATE(values<Case>({{"gid:2000", 02775, 02775, 0644},
                                        {"gid:2000", 02770, 02770, 0640},
                                        {"gid:2000", 0775, 0775, 0644},
                                        {"gid:2000", 02755, 0700, 0644},
                                        {"gid:2001", 02755, 0700, 0644},
                                        {"all", 02777, 02775, 0644},
                                        {"all", 0777, 0700, 0644}}));
  INFO(a.trust << " " << a.mode);
  const bool is_shared = a.dir_mode != 0700;
  MemCache cache;
  cache.env->dirs()["/team"] = {
      .kind = FileKind::kDirectory, .owner = 0, .group = 2000, .mode = a.mode};
  Store store({.dir = "/team/sub/cache", .trust = parse_trust(a.trust).value()}, cache.env);
  const std::unique_ptr<MakeLock> lock = store.lock(sample_identity());
  REQUIRE(lock != nullptr);
  const std::string lock_path = paths::lock_path("/team/sub/cache", sample_identity());
  CHECK(cache.env->files()[lock_path].info.group == (is_shared ? 2000 : 0));
  if (is_shared) CHECK(cache.env->files()[lock_path].info.mode == 0660);
  REQUIRE(publishes(store, sample_entry()));
  for (const char* name : {"/team/sub", "/team/sub/cache", "/team/sub/cache/entries",
                           "/team/sub/cache/tmp", "/team/sub/cache/locks"}) {
    INFO(name);
    CHECK(cache.env->dirs()[name].mode == a.dir_mode);
    CHECK(cache.env->dirs()[name].group == (is_shared ? 2000 : 0));
  }
  CHECK(cache.env->files()[store.path_of(sample_identity())].info.mode == a.file_mode);
}

// As another user of a process that has no group but these.
int as_user(uid_t user, std::vector<gid_t> groups, const std::function<bool()>& body) {
  return test::wait_for(test::start_child([&] {
    const gid_t own = groups.front();
    if (::setgroups(groups.size(), groups.data()) != 0 || ::setresgid(own, own, own) != 0 ||
        ::setresuid(user, user, user) != 0) {
      return 2;
    }
    return body() ? 0 : 1;
  }));
}

TEST_CASE("ATeamSharesAFolder", "[cache]") {
  if (::geteuid() != 0) {
    WARN("not root: cannot be other users");
    return;
  }
  const TempDir temp;
  const std::string dir = temp.path() + "/team";
  REQUIRE(::chmod(temp.path().c_str(), 0755) == 0);
  REQUIRE(::mkdir(dir.c_str(), 0700) == 0);
  REQUIRE(::chown(dir.c_str(), 0, 2000) == 0);
  REQUIRE(::chmod(dir.c_str(), 02775) == 0);
  const mode_t mask = GENERATE(022, 002, 077);
  INFO(mask);
  const auto store_of = [&](const std::string& name) {
    return std::make_unique<Store>(
        StoreOptions{.dir = dir + name, .trust = parse_trust("gid:2000").value()});
  };
  const std::string name = GENERATE("", "/cubinery");
  const auto publishes_one = [&](int number) {
    ::umask(mask);
    const auto store = store_of(name);
    return store->lock(numbered_entry(number).identity) &&
           publishes(*store, numbered_entry(number));
  };
  const auto finds = [&](int number) {
    return store_of(name)->lookup(numbered_entry(number).identity).has_value();
  };
  // The second has the group for his primary one, the third is no member.
  CHECK(as_user(1001, {1001, 2000}, [&] { return publishes_one(1); }) == 0);
  CHECK(as_user(1002, {2000}, [&] { return finds(1) && publishes_one(1) && publishes_one(2); }) ==
        0);
  CHECK(as_user(1001, {1001, 2000}, [&] { return finds(1) && finds(2) && publishes_one(2); }) == 0);
  CHECK(as_user(1003, {1003}, [&] { return !publishes_one(3); }) == 0);
  // A lock that a killed process of another user left.
  const Identity left = numbered_entry(4).identity;
  CHECK(as_user(1001, {1001, 2000},
                [&] { return store_of(name)->lock(left).release() != nullptr; }) == 0);
  CHECK(as_user(1002, {1002, 2000}, [&] { return store_of(name)->lock(left) != nullptr; }) == 0);
  // Nobody trusts the group for its name in the system alone.
  CHECK(as_user(1002, {1002, 2000}, [&] {
          return !Store({.dir = dir + name}).lookup(numbered_entry(1).identity);
        }) == 0);
}

// A volume of Kubernetes with fsGroup 2000: mounted as root:2000, 2775; each start of a pod gives
// everything in it to the group, and lets it write.
TEST_CASE("AFilledCacheOutlivesAnFsGroup", "[cache]") {
  if (::geteuid() != 0) {
    WARN("not root: cannot be another user");
    return;
  }
  const TempDir temp;
  const std::string mount = temp.path() + "/mount";
  REQUIRE(::chmod(temp.path().c_str(), 0755) == 0);
  REQUIRE(::mkdir(mount.c_str(), 0700) == 0);
  const auto kubelet = [&] {
    const auto give = [](const std::string& path) {
      struct ::stat status {};
      return ::chown(path.c_str(), static_cast<uid_t>(-1), 2000) == 0 &&
             ::stat(path.c_str(), &status) == 0 &&
             ::chmod(path.c_str(), status.st_mode | (S_ISDIR(status.st_mode) ? 02770 : 0660)) == 0;
    };
    bool ok = give(mount);
    for (const auto& file : std::filesystem::recursive_directory_iterator(mount)) {
      ok = give(file.path()) && ok;
    }
    return ok;
  };
  const std::string dir = mount + GENERATE("", "/cubinery");
  const StoreOptions options{.dir = dir, .trust = {.groups = {2000}}};
  REQUIRE(kubelet());
  CHECK(as_user(1000, {1000, 2000}, [&] {
          Store store(options);
          return publishes(store, numbered_entry(1));
        }) == 0);
  REQUIRE(kubelet());
  // The image's user may be another one after an update.
  CHECK(as_user(GENERATE(1000, 1001), {1000, 2000}, [&] {
          Store store(options);
          return store.lookup(numbered_entry(1).identity) && publishes(store, numbered_entry(2)) &&
                 publishes(store, numbered_entry(1)) && store.gc();
        }) == 0);
  CHECK(as_user(1000, {1000, 2000},
                [&] { return !Store({.dir = dir}).lookup(numbered_entry(1).identity); }) == 0);
}

// A server that squashes root: what root makes belongs to nobody.
TEST_CASE("ASquashedRootUsesItsOwnFiles", "[cache]") {
  MemCache cache;
  cache.env->made_by = 65534;
  Store refusing({.dir = kDir}, cache.env);
  CHECK_FALSE(publishes(refusing, sample_entry()));
  Store store({.dir = kDir, .trust = parse_trust("uid:65534").value()}, cache.env);
  CHECK(publishes(store, sample_entry()));
  CHECK(store.lookup(sample_identity()));
  CHECK(store.lock(sample_identity()) != nullptr);
  CHECK(store.gc().has_value());
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
