// A wall-clock budget that several pieces of work share.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace cubinery {

enum class ShareState : int {
  kDone,
  kOutOfTime,  // it would go on where it stopped
  kEndsAll,
};

// Works on piece `i` for at most the time that it is given.
using ShareFunction = std::function<ShareState(std::size_t i, std::chrono::milliseconds time)>;
using NowFunction = std::function<std::chrono::steady_clock::time_point()>;

// Runs every piece, one after the other, each with what is left of the budget in proportion to its
// weight among those that are still to come.  Pieces that ran out of time, and those alone, run
// again with what the others left over, until all are done or the budget is spent.
// Requires: weights above 0.
void share_budget(std::chrono::milliseconds budget, const std::vector<std::size_t>& weights,
                  const ShareFunction& run,
                  const NowFunction& now = std::chrono::steady_clock::now);

}  // namespace cubinery
