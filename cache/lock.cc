#include "cache/lock.h"

#include <fmt/format.h>

#include <algorithm>

namespace cubinery {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{1};
constexpr milliseconds kLongestPause{50};
constexpr milliseconds kTellAfter{1000};

std::string own_name(Env& env) {
  return fmt::format("process {} on {}", env.process(), env.host());
}

// What the holder wrote into its lock file: "process 1234 on host".
std::string holder_of(Env& env, const std::string& path) {
  const std::string owner = env.lock_owner(path);
  return owner.empty() ? "another process" : owner;
}

bool is_held(std::error_code error) { return error == std::errc::operation_would_block; }

}  // namespace

std::error_code poll_lock(Env& env, milliseconds wait,
                          const std::function<std::error_code()>& attempt,
                          const std::function<void(milliseconds)>& waited) {
  const milliseconds start = env.uptime();
  milliseconds pause = kFirstPause;
  for (;;) {
    const std::error_code error = attempt();
    if (!is_held(error)) return error;
    const milliseconds so_far = env.uptime() - start;
    if (so_far >= wait) return error;
    if (waited) waited(so_far);
    // Polling: a call that waits for a lock cannot be bounded without signals.
    env.pause(std::min(pause, wait - so_far));
    pause = std::min(2 * pause, kLongestPause);
  }
}

milliseconds WaitBudget::left(milliseconds now) {
  std::int64_t start = kNotStarted;
  if (start_.compare_exchange_strong(start, now.count())) start = now.count();
  return std::max(wait_ - (now - milliseconds(start)), milliseconds(0));
}

void LostHolders::add(const std::string& holder, const std::string& path) {
  const std::lock_guard<std::mutex> guard(mutex_);
  paths_.insert_or_assign(holder, path);
}

bool LostHolders::contains(const std::string& holder) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return paths_.contains(holder);
}

bool LostHolders::still_contains(Env& env, const std::string& holder, const std::string& path) {
  std::string waited_for;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = paths_.find(holder);
    if (found == paths_.end()) return false;
    waited_for = found->second;
  }
  if (waited_for == path) return true;
  std::unique_ptr<HeldLock> held;
  const bool is_free = !is_held(env.try_lock(waited_for, own_name(env), &held));
  if (!is_free && holder_of(env, waited_for) == holder) return true;
  const std::lock_guard<std::mutex> guard(mutex_);
  paths_.erase(holder);
  return false;
}

std::unique_ptr<MakeLock> wait_for_lock(Env& env, const LockRequest& request) {
  std::unique_ptr<HeldLock> held;
  const std::string owner = own_name(env);
  const auto attempt = [&] { return env.try_lock(request.path, owner, &held); };
  const auto tell = [&](std::string_view what, std::string_view holder, std::string_view why) {
    request.tell(fmt::format("{} {}, which holds {}{}", what, holder, request.path, why));
  };
  std::error_code error = attempt();
  if (!error) return std::make_unique<MakeLock>(std::move(held));
  if (!is_held(error)) return nullptr;

  const std::string holder = holder_of(env, request.path);
  if (request.lost.still_contains(env, holder, request.path)) {
    tell("not waiting for", holder, "; it was waited for in vain");
    return nullptr;
  }
  const milliseconds start = env.uptime();
  const milliseconds left = std::min(request.wait, request.budget.left(start));
  bool told = left < request.wait && left == milliseconds(0);
  if (told) tell("not waiting for", holder, "; this call has waited long enough");
  error = poll_lock(
      env, left,
      [&] {
        const std::error_code refused = attempt();
        // Another thread has waited for it to the end meanwhile.
        const bool is_lost = is_held(refused) && request.lost.contains(holder);
        return is_lost ? std::make_error_code(std::errc::timed_out) : refused;
      },
      [&](milliseconds waited) {
        if (told || waited < kTellAfter) return;
        tell("waiting for", holder_of(env, request.path), "");
        told = true;
      });
  if (!error) return std::make_unique<MakeLock>(std::move(held));
  if (!is_held(error) || left == milliseconds(0)) return nullptr;
  const std::string last_holder = holder_of(env, request.path);
  if (told) tell("gave up waiting for", last_holder, "");
  if (last_holder == holder && left >= request.wait) request.lost.add(holder, request.path);
  return nullptr;
}

}  // namespace cubinery
