#include "cache/lock.h"

#include <fmt/format.h>

#include <algorithm>

namespace cubinery {
namespace {

using std::chrono::milliseconds;

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

std::error_code poll_lock(Env& env, milliseconds wait,
                          const std::function<std::error_code()>& attempt,
                          const std::function<void(milliseconds)>& waited) {
  const milliseconds start = env.uptime();
  milliseconds pause = kFirstPause;
  for (;;) {
    const std::error_code error = attempt();
    if (error != std::errc::operation_would_block) return error;
    const milliseconds so_far = env.uptime() - start;
    if (so_far >= wait) return error;
    if (waited) waited(so_far);
    // Polling: a blocking flock() cannot be bounded without signals.
    env.pause(std::min(pause, wait - so_far));
    pause = std::min(2 * pause, kLongestPause);
  }
}

std::unique_ptr<MakeLock> wait_for_lock(Env& env, const std::string& path, milliseconds wait,
                                        const std::function<void(std::string_view)>& tell) {
  const std::string owner = fmt::format("process {} on {}", env.process(), env.host());
  std::unique_ptr<HeldLock> held;
  bool told = false;
  const std::error_code error = poll_lock(
      env, wait, [&] { return env.try_lock(path, owner, &held); },
      [&](milliseconds waited) {
        if (told || waited < kTellAfter) return;
        tell(fmt::format("waiting for {}, which holds {}", holder_of(env, path), path));
        told = true;
      });
  if (!error) return std::make_unique<MakeLock>(std::move(held));
  if (told && error == std::errc::operation_would_block) {
    tell(fmt::format("gave up waiting for {}, which holds {}", holder_of(env, path), path));
  }
  return nullptr;
}

}  // namespace cubinery
