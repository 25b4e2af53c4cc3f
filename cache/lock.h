// Waiting for whoever makes an entry.
//
// Locks only save work: entries are published whole whether or not anybody holds one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
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

// Takes the lock on `path`, waiting at most `wait` while somebody else holds it; tries at least
// once. nullptr: the time ran out, or there is no lock to be had.  `tell` hears of waits that take
// long.
std::unique_ptr<MakeLock> wait_for_lock(Env& env, const std::string& path,
                                        std::chrono::milliseconds wait,
                                        const std::function<void(std::string_view)>& tell);

}  // namespace cubinery
