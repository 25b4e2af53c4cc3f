// Each operation of the cache, with a fault in each of its system calls.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "cache/pack.h"
#include "cache/paths.h"
#include "cache/store.h"
#include "results/record_file.h"
#include "tests/cache/sample.h"
#include "tests/cache/system_calls.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::entry_of_version;
using test::numbered_entry;
using test::sample_entry;
using test::sample_identity;
using test::SystemCalls;

bool all(const Identity&) { return true; }

std::size_t open_files() { return test::count_files("/proc/self/fd"); }

// A directory with two entries over a directory with one over a pack with one, and a pack to
// import.
struct Bench {
  const test::TempDir temp;
  const std::string dir = temp.path() + "/cache";
  const std::string layer = temp.path() + "/layer";
  const std::string pack = temp.path() + "/pack";
  const std::string incoming = temp.path() + "/incoming";
  const std::string output = temp.path() + "/output";
  const StoreOptions options{
      .dir = dir, .layers = {layer, pack}, .lock_wait = std::chrono::milliseconds(0)};
  static constexpr std::size_t kEntries = 4;

  Bench() {
    const SystemCalls no_sync;
    Store store({.dir = dir});
    Store below({.dir = layer});
    Store packed({.dir = temp.path() + "/packed"});
    bool ok = store.publish(sample_entry()) && store.publish(numbered_entry(0)) &&
              below.publish(numbered_entry(1)) && packed.publish(numbered_entry(2)) &&
              packed.export_pack(pack, all, nullptr) && packed.publish(numbered_entry(3)) &&
              packed.publish(numbered_entry(0)) && packed.export_pack(incoming, all, nullptr);
    REQUIRE(ok);
  }

  std::string records() const { return temp.path() + "/records"; }

  // Takes back what operations add.
  void reset() const {
    const Store store({.dir = dir});
    for (const int n : {2, 3, 4}) {
      std::filesystem::remove(store.path_of(numbered_entry(n).identity));
    }
    std::filesystem::remove(output);
    std::filesystem::remove(records());
    std::filesystem::remove_all(temp.path() + "/a");
  }

  std::size_t temporaries() const {
    std::size_t count = test::count_files(dir + "/tmp");
    for (const auto& file : std::filesystem::directory_iterator(temp.path())) {
      count += file.path().extension() == ".tmp" ? 1 : 0;
    }
    return count;
  }

  // What an entry is, was or has become right in between is there, and nothing else.
  std::string trouble() const {
    const SystemCalls no_sync;
    Store store(options);
    for (const Entry& entry :
         {sample_entry(), numbered_entry(0), numbered_entry(1), numbered_entry(2)}) {
      const std::optional<StoredEntry> found = store.lookup(entry.identity);
      if (!found) return "lost: " + entry.identity.key;
      if (!(found->entry == entry)) return "wrong: " + entry.identity.key;
    }
    for (const ListedEntry& entry : test::list_all(store)) {
      if (!entry.problem.empty()) return entry.path + ": " + entry.problem;
    }
    if (!store.lock(sample_identity())) return "the lock is held";
    if (!store.publish(sample_entry())) return "nothing can be published";
    return "";
  }
};

// What an operation did: all of it, less and it says so, or something that it must not do.
enum class Did { kAll, kLess, kWrong };

struct Operation {
  const char* name;
  std::function<Did(const Bench&, Store&)> run;
  // What there is afterwards, if it did all; null: what there was before.
  std::function<bool(const Bench&)> holds = nullptr;
};

Did look_up(Store& store, const Identity& wanted, const Entry& entry) {
  const std::optional<StoredEntry> found = store.lookup(wanted);
  if (!found) return Did::kLess;
  return found->entry == entry ? Did::kAll : Did::kWrong;
}

bool finds(const std::string& layer, const Entry& entry) {
  Store store({.layers = {layer}});
  const std::optional<StoredEntry> found = store.lookup(entry.identity);
  return found && found->entry == entry;
}

Did list_all(Store& store) {
  std::size_t good = 0;
  for (const ListedEntry& listed : test::list_all(store)) {
    if (!listed.entry && listed.problem.empty()) return Did::kWrong;
    good += listed.problem.empty() ? 1 : 0;
  }
  return good == Bench::kEntries ? Did::kAll : Did::kLess;
}

Did know_all(Store& store) {
  for (const KnownEntry& known : store.known("row_scale")) {
    if (!known.path.ends_with(paths::entry_name(known.identity))) return Did::kWrong;
  }
  return store.known("row_scale").size() == Bench::kEntries ? Did::kAll : Did::kLess;
}

Did export_all(const Bench& bench, Store& store) {
  const Result<ExportResult> result = store.export_pack(bench.output, all, nullptr);
  if (!result) return Did::kLess;
  if (result->entries + result->unusable != Bench::kEntries) return Did::kWrong;
  return result->unusable == 0 ? Did::kAll : Did::kLess;
}

Did import_all(const Bench& bench, Store& store) {
  const Result<ImportResult> result = store.import_pack(bench.incoming, nullptr);
  if (!result) return Did::kLess;
  if (result->imported + result->present + result->damaged != 3) return Did::kWrong;
  return result->damaged == 0 ? Did::kAll : Did::kLess;
}

Did collect(Store& store) {
  const Result<GcResult> result = store.gc();
  return result && result->entries_removed == 0 ? Did::kAll : result ? Did::kWrong : Did::kLess;
}

Did append(const Bench& bench, Store&) {
  return append_lines(bench.records(), "a line\n").ok() ? Did::kAll : Did::kLess;
}

std::vector<Operation> operations() {
  Identity any_version = sample_identity();
  any_version.nvrtc.clear();
  return {
      {"lookup",
       [](const Bench&, Store& store) {
         return look_up(store, numbered_entry(0).identity, numbered_entry(0));
       }},
      {"lookup of any version",
       [=](const Bench&, Store& store) { return look_up(store, any_version, sample_entry()); }},
      {"lookup in a layer",
       [](const Bench&, Store& store) {
         return look_up(store, numbered_entry(1).identity, numbered_entry(1));
       }},
      {"lookup in a pack",
       [](const Bench&, Store& store) {
         return look_up(store, numbered_entry(2).identity, numbered_entry(2));
       }},
      {"lookup of any version in a pack",
       [](const Bench&, Store& store) {
         Identity any = numbered_entry(2).identity;
         any.nvrtc.clear();
         return look_up(store, any, numbered_entry(2));
       }},
      {"publish",
       [](const Bench&, Store& store) {
         return store.publish(numbered_entry(4)) ? Did::kAll : Did::kLess;
       },
       [](const Bench& bench) { return finds(bench.dir, numbered_entry(4)); }},
      {"publish into nothing",
       [](const Bench& bench, Store&) {
         Store store({.dir = bench.temp.path() + "/a/b"});
         return store.publish(numbered_entry(4)) ? Did::kAll : Did::kLess;
       },
       [](const Bench& bench) { return finds(bench.temp.path() + "/a/b", numbered_entry(4)); }},
      {"lock", [](const Bench&,
                  Store& store) { return store.lock(sample_identity()) ? Did::kAll : Did::kLess; }},
      {"list", [](const Bench&, Store& store) { return list_all(store); }},
      {"known", [](const Bench&, Store& store) { return know_all(store); }},
      {"gc", [](const Bench&, Store& store) { return collect(store); }},
      {"check_writable",
       [](const Bench&, Store& store) {
         return store.check_writable().ok() ? Did::kAll : Did::kLess;
       }},
      {"export", export_all,
       [](const Bench& bench) {
         return finds(bench.output, sample_entry()) && finds(bench.output, numbered_entry(2));
       }},
      {"import", import_all,
       [](const Bench& bench) {
         return finds(bench.dir, numbered_entry(2)) && finds(bench.dir, numbered_entry(3));
       }},
      {"append", append,
       [](const Bench& bench) {
         return test::read_bytes(bench.records()).find("a line\n") != std::string::npos;
       }},
  };
}

// Calls that a signal may interrupt, and that are made again.
bool is_repeated(const std::string& call) {
  return std::set<std::string>{"open", "read", "pread", "write", "fsync", "fcntl"}.contains(call);
}

// What another machine's work does to a network file system's files, once: nobody notices.
TEST_CASE("AnySystemCallMayFindItsFileStale", "[cache]") {
  const int error = GENERATE(ESTALE, SystemCalls::kLost);
  std::set<std::string> calls_seen;
  for (const Operation& operation : operations()) {
    const Bench bench;
    for (int at = 0;; ++at) {
      bench.reset();
      const std::size_t files = open_files();
      test::Log log;
      StoreOptions options = bench.options;
      options.log = log.callback();
      Store store(options);
      std::string call;
      Did did = Did::kLess;
      {
        const SystemCalls calls(at, error);
        did = operation.run(bench, store);
        call = calls.hit();
      }
      INFO(operation.name << ", call " << at << " (" << call << "), " << error);
      REQUIRE(did == Did::kAll);
      if (operation.holds) REQUIRE(operation.holds(bench));
      REQUIRE(log.count("") == 0);
      REQUIRE(store.damaged() + store.failed_writes() == 0);
      REQUIRE(bench.temporaries() == 0);
      REQUIRE(test::count_files(bench.dir + "/locks") == 0);
      REQUIRE(open_files() <= files + 1);  // the pack's
      if (call.empty()) break;
      calls_seen.insert(call);
    }
  }
  for (const char* call :
       {"close", "fcntl", "fstat", "fstatat", "fsync", "lstat", "mkdir", "open", "opendir", "pread",
        "read", "readdir", "rename", "stat", "unlink", "utimensat", "write"}) {
    INFO(call);
    CHECK(calls_seen.contains(call));
  }
}

TEST_CASE("AnySystemCallMayFail", "[cache]") {
  std::set<std::string> calls_seen;
  for (const Operation& operation : operations()) {
    for (const int error : {ENOSPC, EIO, EACCES, EROFS, EMFILE, EINTR}) {
      const Bench bench;
      int at = 0;
      for (;; ++at) {
        bench.reset();
        const std::size_t files = open_files();
        const std::size_t temporaries = bench.temporaries();
        Did did = Did::kLess;
        std::string call;
        {
          Store store(bench.options);
          const SystemCalls calls(at, error);
          did = operation.run(bench, store);
          call = calls.hit();
        }
        INFO(operation.name << ", call " << at << " (" << call << "): " << std::strerror(error));
        REQUIRE(open_files() == files);
        // A file that may not be examined is left out of lists.
        const bool may_miss = call == "fstatat" && error == EACCES;
        REQUIRE((did != Did::kWrong || may_miss));
        if (did == Did::kAll && operation.holds && !may_miss) REQUIRE(operation.holds(bench));
        if (call.empty() || (error == EINTR && is_repeated(call))) REQUIRE(did == Did::kAll);
        REQUIRE(bench.temporaries() <= temporaries + (call == "unlink" ? 1 : 0));
        REQUIRE(bench.trouble() == "");
        if (call.empty()) break;
        calls_seen.insert(call);
      }
      REQUIRE(at > 3);
    }
  }
  // Each that the cache makes has failed.
  for (const char* call :
       {"close",       "fcntl",  "fstat",     "fstatat", "fsync",   "ftruncate", "getrandom",
        "gethostname", "lstat",  "mkdir",     "open",    "opendir", "pread",     "read",
        "readdir",     "rename", "renameat2", "stat",    "unlink",  "utimensat", "write"}) {
    INFO(call);
    CHECK(calls_seen.contains(call));
  }
}

}  // namespace
}  // namespace cubinery
