#include "cli/budget.h"

#include <chrono>
#include <utility>
#include <vector>

#include "tests/catch.h"

namespace cubinery {
namespace {

using std::chrono::milliseconds;
using Calls = std::vector<std::pair<std::size_t, milliseconds>>;

// Pieces of work that need so much time each, on a clock that only they move.
struct Pieces {
  std::vector<milliseconds> needed;
  std::size_t fatal = 99;
  std::chrono::steady_clock::time_point now{};
  Calls calls{};

  milliseconds share(milliseconds budget, const std::vector<std::size_t>& weights) {
    const auto start = now;
    share_budget(
        budget, weights,
        [&](std::size_t i, milliseconds time) {
          calls.emplace_back(i, time);
          const milliseconds used = std::min(needed[i], time);
          now += used;
          needed[i] -= used;
          if (i == fatal) return ShareState::kEndsAll;
          return needed[i].count() > 0 ? ShareState::kOutOfTime : ShareState::kDone;
        },
        [&] { return now; });
    return std::chrono::duration_cast<milliseconds>(now - start);
  }
};

TEST_CASE("pieces get shares of a budget and what those in front left over", "[cpu]") {
  Pieces pieces{{milliseconds(10), milliseconds(50), milliseconds(1)}};
  CHECK(pieces.share(milliseconds(100), {1, 3, 1}) == milliseconds(61));
  CHECK(pieces.calls == Calls{{0, milliseconds(20)}, {1, milliseconds(67)}, {2, milliseconds(40)}});
}

TEST_CASE("a piece that ran out of its share goes on with what is left", "[cpu]") {
  // 14 and 105 buckets within seven minutes: the first needs a second more than its share.
  Pieces pieces{{milliseconds(50400), milliseconds(300000)}};
  CHECK(pieces.share(milliseconds(420000), {14, 105}) == milliseconds(350400));
  CHECK(pieces.calls ==
        Calls{{0, milliseconds(49411)}, {1, milliseconds(370589)}, {0, milliseconds(70589)}});
}

TEST_CASE("a budget that is too small is spent and no more", "[cpu]") {
  Pieces pieces{{milliseconds(1000), milliseconds(10), milliseconds(1000)}};
  CHECK(pieces.share(milliseconds(300), {1, 1, 1}) == milliseconds(300));
  CHECK(pieces.needed[1] == milliseconds(0));
  Pieces none{{milliseconds(1000), milliseconds(10)}};
  CHECK(none.share(milliseconds(0), {1, 1}) == milliseconds(0));
  CHECK(none.calls == Calls{{0, milliseconds(0)}, {1, milliseconds(0)}});
}

TEST_CASE("a piece can end them all", "[cpu]") {
  Pieces pieces{{milliseconds(10), milliseconds(10), milliseconds(10)}, 1};
  pieces.share(milliseconds(6), {1, 1, 1});
  CHECK(pieces.calls.size() == 2);
}

}  // namespace
}  // namespace cubinery
