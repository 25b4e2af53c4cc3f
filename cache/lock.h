// Waiting for whoever makes an entry.
//
// Locks only save work: entries are published whole whether or not anybody holds one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "cache/env.h"

namespace cubinery {

// Held while one process makes an entry that others may wait for; released when destroyed, and by
// the kernel when the process dies.  May be destroyed by another thread than the one that took it.
class MakeLock {
 public:
  explicit MakeLock(std::unique_ptr<HeldLock> held) : held_(std::move(held)) {}

 private:
  const std::unique_ptr<HeldLock> held_;
};

// Calls `attempt` until it returns anything but operation_would_block, or until `wait` has passed;
// at least once.  Its last error.  `waited` hears before each pause how long it has been.
std::error_code poll_lock(Env& env, std::chrono::milliseconds wait,
                          const std::function<std::error_code()>& attempt,
                          const std::function<void(std::chrono::milliseconds)>& waited = nullptr);

// How long all the locks of one call may be waited for together.  Thread-safe.
class WaitBudget {
 public:
  explicit WaitBudget(std::chrono::milliseconds wait) : wait_(wait) {}

  // What is left at `now`, by Env::uptime().  The clock starts when this is asked first.
  std::chrono::milliseconds left(std::chrono::milliseconds now);

 private:
  static constexpr std::int64_t kNotStarted = -1;

  const std::chrono::milliseconds wait_;
  std::atomic<std::int64_t> start_{kNotStarted};
};

// Who was waited for in vain, a stopped process for instance, whose other locks are then not worth
// waiting for either.  A holder is its text in the lock file: "process 1234 on host".  Thread-safe.
class LostHolders {
 public:
  // `holder` had the lock on `path` for as long as it was waited for.
  void add(const std::string& holder, const std::string& path);
  bool contains(const std::string& holder) const;
  // The same, after a look at the lock that was waited for: who has let go of it is alive, or dead
  // and holds nothing, and is forgotten.  Requires: `holder` has the lock on `path`.
  bool still_contains(Env& env, const std::string& holder, const std::string& path);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> paths_;  // by holder; guarded by mutex_
};

struct LockRequest {
  const std::string& path;
  std::chrono::milliseconds wait;  // for a holder; less where the budget has less left
  WaitBudget& budget;
  LostHolders& lost;
  // Hears of waits that take long, and of those that are not worth it.
  const std::function<void(std::string_view)>& tell;
};

// Takes the lock, waiting while somebody else holds it; tries at least once. nullptr: the time ran
// out, or there is no lock to be had.
std::unique_ptr<MakeLock> wait_for_lock(Env& env, const LockRequest& request);

}  // namespace cubinery
