#include "cache/lock.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace cubinery {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstPause{1};
constexpr milliseconds kLongestPause{50};
constexpr milliseconds kTellAfter{1000};

// What the holder wrote into its lock file: "process 1234 on host".
std::string holder_of(Env& env, const std::string& path) {
  std::string owner;
  FileInfo info;
  if (env.read(path, &owner, &info) || owner.empty()) return "another process";
  return owner;
}

}  // namespace

std::unique_ptr<MakeLock> wait_for_lock(Env& env, const std::string& path, milliseconds wait,
                                        const std::function<void(std::string_view)>& tell) {
  const std::string owner = fmt::format("process {} on {}", env.process(), env.host());
  const steady_clock::time_point start = steady_clock::now();
  milliseconds pause = kFirstPause;
  bool told = false;
  for (;;) {
    std::unique_ptr<HeldLock> held;
    const std::error_code error = env.try_lock(path, owner, &held);
    if (!error) return std::make_unique<MakeLock>(std::move(held));
    if (error != std::errc::operation_would_block) return nullptr;
    const auto waited = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
    if (waited >= wait) {
      if (told)
        tell(fmt::format("gave up waiting for {}, which holds {}", holder_of(env, path), path));
      return nullptr;
    }
    if (waited >= kTellAfter && !told) {
      tell(fmt::format("waiting for {}, which holds {}", holder_of(env, path), path));
      told = true;
    }
    // Polling: a blocking flock() cannot be bounded without signals.
    std::this_thread::sleep_for(std::min(pause, wait - waited));
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace cubinery
