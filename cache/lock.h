// Waiting for whoever makes an entry.
//
// Locks only save work: entries are published whole whether or not anybody holds one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
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

// Takes the lock on `path`, waiting at most `wait` while somebody else holds it; tries at least
// once. nullptr: the time ran out, or there is no lock to be had.  `tell` hears of waits that take
// long.
std::unique_ptr<MakeLock> wait_for_lock(Env& env, const std::string& path,
                                        std::chrono::milliseconds wait,
                                        const std::function<void(std::string_view)>& tell);

}  // namespace cubinery
