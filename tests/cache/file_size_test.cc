// Processes whose files may not grow (RLIMIT_FSIZE): no write of ours ends them.
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "cache/store.h"
#include "results/record_file.h"
#include "tests/cache/child.h"
#include "tests/cache/sample.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::file_size_test {
namespace {

using test::sample_entry;
using test::sample_identity;

bool all(const Identity&) { return true; }

// In a child: what the host does with the signal by default is to die.
bool limit_files(rlim_t bytes) {
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  return ::signal(SIGXFSZ, SIG_DFL) != SIG_ERR && ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

bool is_pending() {
  sigset_t pending;
  return ::sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

bool is_blocked() {
  sigset_t mask;
  return ::pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0 && sigismember(&mask, SIGXFSZ) == 1;
}

bool is_too_large(const Status& status) {
  return status.code() == Code::kIo &&
         status.message().find("File too large") != std::string_view::npos;
}

TEST_CASE("AFileSizeLimitIsAFailedWrite", "[cache]") {
  const rlim_t limit = GENERATE(rlim_t{0}, rlim_t{100});
  const test::TempDir temp;
  Store filled({.dir = temp.path() + "/filled"});
  REQUIRE(filled.publish(sample_entry()));
  const pid_t child = test::start_child([&] {
    if (!limit_files(limit)) return 1;
    test::Log log;
    Store store({.dir = temp.path() + "/cache", .log = log.callback()});
    // The lock's text does not fit either.
    if (!store.lock(sample_identity())) return 2;
    for (int i = 0; i < 2; ++i) {
      const Result<std::string> path = store.publish(sample_entry());
      if (path || !is_too_large(path.error())) return 3;
    }
    if (store.failed_writes() != 2 || log.count("File too large") != 1) return 4;
    const Result<ExportResult> pack = filled.export_pack(temp.path() + "/pack", all, nullptr);
    if (pack || !is_too_large(pack.error())) return 5;
    const std::string lines(200, '\n');
    if (!is_too_large(append_lines(temp.path() + "/k.results.jsonl", lines))) return 6;
    if (limit == 0 && store.check_writable().ok()) return 7;
    return is_pending() || is_blocked() ? 8 : 0;
  });
  CHECK(test::wait_for(child) == 0);
  CHECK(test::count_files(temp.path() + "/cache/tmp") == 0);
  CHECK_FALSE(std::filesystem::exists(temp.path() + "/pack"));
}

// What the host has blocked, and what waits for it, stays as it was.
TEST_CASE("TheHostsOwnSignalsStayPending", "[cache]") {
  const bool has_own = GENERATE(false, true);
  const test::TempDir temp;
  const pid_t child = test::start_child([&] {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGXFSZ);
    if (!limit_files(10) || ::pthread_sigmask(SIG_BLOCK, &mask, nullptr) != 0) return 1;
    if (has_own) ::raise(SIGXFSZ);
    Store store({.dir = temp.path()});
    if (store.publish(sample_entry())) return 2;
    return is_pending() == has_own && is_blocked() ? 0 : 3;
  });
  CHECK(test::wait_for(child) == 0);
}

// A handler of the host's hears of the host's writes only.
TEST_CASE("TheHostsHandlerIsNotCalledForOurs", "[cache]") {
  const test::TempDir temp;
  const pid_t child = test::start_child([&] {
    if (!limit_files(10)) return 1;
    ::signal(SIGXFSZ, [](int) { ::_exit(2); });
    Store store({.dir = temp.path()});
    return store.publish(sample_entry()) ? 3 : 0;
  });
  CHECK(test::wait_for(child) == 0);
}

}  // namespace
}  // namespace cubinery::file_size_test
