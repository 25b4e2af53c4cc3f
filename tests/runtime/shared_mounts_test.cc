// Machines that share one directory, as far as one machine can show it: clients of a file system
// that remember names and misses for half a minute (shared_mounts.sh mounts them and runs these
// tests).
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cache/store.h"
#include "tests/cache/child.h"
#include "tests/catch.h"
#include "tests/runtime/twice_template.h"

namespace cubinery {
namespace {

constexpr int kKernels = 13;
constexpr int kFailed = 100;

// One folder as each of the clients sees it.
std::vector<std::string> mounts() {
  const char* const list = std::getenv("CUBINERY_TEST_MOUNTS");
  std::istringstream words(list == nullptr ? "" : list);
  std::vector<std::string> mounts;
  for (std::string mount; words >> mount;) mounts.push_back(mount);
  REQUIRE(mounts.size() >= 2);
  return mounts;
}

bool has_shared_locks() { return std::getenv("CUBINERY_TEST_LOCAL_LOCKS") == nullptr; }

struct Clients {
  test::Workshop workshop;
  std::vector<std::string> folders = mounts();
  std::string cache;  // below each mount

  // The directory is there, as whoever shares one has made it.
  explicit Clients(std::string name) : cache("/" + std::move(name)) {
    std::filesystem::create_directory(folders[0] + cache);
  }

  Options options(std::size_t client) {
    Options options = workshop.options();
    options.cache_dir = folders[client % folders.size()] + cache;
    return options;
  }

  // In a child: all kernels, in this order; how many it compiled.
  int work(std::size_t client, int kernels = kKernels) {
    const Result<Context> context = Context::create(options(client));
    if (!context) return kFailed;
    for (int n = 0; n < kernels; ++n) {
      const Result<CompiledKernel> compiled = context->compile(test::twice_spec(32 * (n + 1)));
      if (!compiled || compiled->path.empty()) return kFailed;
    }
    const CacheStats stats = context->stats();
    return stats.failed_writes + stats.damaged == 0 ? static_cast<int>(stats.compiles) : kFailed;
  }

  // In a child that compiles nothing: how many of the kernels are not there.
  int missing(std::size_t client) {
    Options offline = options(client);
    offline.offline = true;
    const Result<Context> context = Context::create(offline);
    if (!context) return kFailed;
    int missing = 0;
    for (int n = 0; n < kKernels; ++n) {
      const Result<CompiledKernel> found = context->compile(test::twice_spec(32 * (n + 1)));
      if (found) continue;
      if (found.error().code() != Code::kNotCached) return kFailed;
      ++missing;
    }
    return missing;
  }

  std::vector<pid_t> start() {
    std::vector<pid_t> children;
    for (std::size_t client = 0; client < folders.size(); ++client) {
      children.push_back(test::start_child([&] { return work(client); }));
      REQUIRE(children.back() > 0);
    }
    return children;
  }

  // Each works to its end: how many kernels they compiled in all.
  int work_together() {
    int compiles = 0;
    for (const pid_t child : start()) {
      const int code = test::wait_for(child);
      REQUIRE(code >= 0);
      REQUIRE(code < kFailed);
      compiles += code;
    }
    return compiles;
  }

  // Every entry is there once and good, as the first client sees it.
  void check_sound() {
    int good = 0;
    Store({.dir = folders[0] + cache}).for_each([&](const ListedEntry& listed) {
      INFO(listed.path << ": " << listed.problem);
      CHECK(listed.problem.empty());
      ++good;
    });
    CHECK(good == kKernels);
  }
};

TEST_CASE("ClientsOfOneFolderCompileEachKernelOnce", "[.shared]") {
  Clients clients("once");
  const int compiles = clients.work_together();
  // Without common locks each may compile what another is compiling, and nobody waits.
  if (has_shared_locks()) CHECK(compiles == kKernels);
  CHECK(compiles <= kKernels * static_cast<int>(clients.folders.size()));
  clients.check_sound();
}

TEST_CASE("AClientSeesWhatAnotherHasMadeAtOnce", "[.shared]") {
  Clients clients("news");
  const auto in_child = [](const auto& body) { return test::wait_for(test::start_child(body)); };
  // Each looks for what is not there yet, and its file system remembers that.
  for (const std::size_t client : {0, 1}) {
    CHECK(in_child([&] { return clients.missing(client); }) == kKernels);
  }
  CHECK(in_child([&] { return clients.work(0, 4); }) == 4);
  CHECK(in_child([&] { return clients.missing(1); }) == kKernels - 4);
  CHECK(in_child([&] { return clients.work(1); }) == kKernels - 4);
  CHECK(in_child([&] { return clients.missing(0); }) == 0);
  CHECK(in_child([&] { return clients.work(0); }) == 0);
  clients.check_sound();
}

TEST_CASE("ClientsThatAreKilledLoseNothing", "[.shared]") {
  Clients clients("killed");
  int kills = 0;
  for (int round = 0; round < 6; ++round) {
    const std::vector<pid_t> children = clients.start();
    std::this_thread::sleep_for(std::chrono::milliseconds(60 + 97 * round));
    for (const pid_t child : children) {
      test::kill_child(child);
      ++kills;
    }
  }
  CHECK(kills == 6 * static_cast<int>(clients.folders.size()));
  const int compiles = clients.work_together();
  if (has_shared_locks()) CHECK(compiles <= kKernels);
  clients.check_sound();
}

}  // namespace
}  // namespace cubinery
