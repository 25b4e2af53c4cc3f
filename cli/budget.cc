#include "cli/budget.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace cubinery {

void share_budget(std::chrono::milliseconds budget, const std::vector<std::size_t>& weights,
                  const ShareFunction& run, const NowFunction& now) {
  using std::chrono::milliseconds;
  const auto end = now() + budget;
  const auto left = [&] {
    return std::max(std::chrono::duration_cast<milliseconds>(end - now()), milliseconds(0));
  };
  std::vector<std::size_t> pieces(weights.size());
  std::iota(pieces.begin(), pieces.end(), std::size_t{0});
  do {
    std::size_t weight_left = 0;
    for (const std::size_t piece : pieces) weight_left += weights[piece];
    std::vector<std::size_t> unfinished;
    for (const std::size_t piece : pieces) {
      const milliseconds share = left() * static_cast<std::int64_t>(weights[piece]) /
                                 static_cast<std::int64_t>(weight_left);
      weight_left -= weights[piece];
      const ShareState state = run(piece, share);
      if (state == ShareState::kEndsAll) return;
      if (state == ShareState::kOutOfTime) unfinished.push_back(piece);
    }
    pieces = std::move(unfinished);
  } while (!pieces.empty() && left() > milliseconds(0));
}

}  // namespace cubinery
