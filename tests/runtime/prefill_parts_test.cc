// How long the parts are that sequences are cut into.
#include "runtime/gdn/prefill/parts.h"

#include <algorithm>
#include <cstdint>

#include "common/chunk/segments.h"
#include "tests/catch.h"

namespace cubinery::gdn {
namespace {

constexpr int kSms = 132;

PartRule rule(int heads, bool wgmma, int warps_per_sm) {
  PrefillProblem problem;
  problem.heads = {.q = heads, .k = heads, .v = heads};
  const GdnPrefillScanKey scan{.parts = true, .wgmma = wgmma, .chunk_size = 32};
  return PartRule(problem, scan, warps_per_sm, kSms);
}

TEST_CASE("PartsOfOneSequenceGrowWithItsSquareRoot", "[cpu]") {
  const PartRule parts = rule(8, true, 24);
  CHECK(parts.chunks(8192, 8192) == 22);                // 12 parts
  CHECK(parts.chunks(32768, 32768) == 43);              // 24
  CHECK(rule(8, false, 8).chunks(32768, 32768) == 64);  // 16: as many as there are places
  CHECK(rule(1, false, 8).chunks(32768, 32768) == 32);  // 32: no sequence has more
  CHECK(parts.chunks(64, 64) == 2);                     // of 64 tokens at least
}

TEST_CASE("SeveralSequencesHaveFewerPartsEach", "[cpu]") {
  CHECK(rule(2, true, 24).chunks(4096, 4096) == 15);      // 9 parts
  CHECK(rule(2, true, 24).chunks(2 * 4096, 4096) == 16);  // 8
  CHECK(rule(2, true, 24).chunks(8 * 4096, 4096) == 22);  // 6
  // 198 / 64 parts of 4 x 8192 tokens, where one sequence would have 12 by itself.
  CHECK(rule(64, true, 24).chunks(4 * 8192, 8192) == 4 * 8192 / 32 / 6 + 1);
  // The longest one decides.
  CHECK(rule(2, true, 24).chunks(32768, 28672) > rule(2, true, 24).chunks(32768, 16384));
}

TEST_CASE("NoLaunchHasMoreResultsThanTheWorkspaceHolds", "[cpu]") {
  for (const int heads : {1, 2, 8, 64}) {
    for (const bool wgmma : {false, true}) {
      const PartRule parts = rule(heads, wgmma, 16);
      for (std::int64_t tokens = 1; tokens < 300000; tokens = tokens * 3 + 1) {
        for (const std::int64_t sequences : {1, 2, 7, 100}) {
          const std::int64_t average = (tokens + sequences - 1) / sequences;
          for (const std::int64_t longest : {average, (average + tokens) / 2, tokens}) {
            const std::int64_t part = std::int64_t{parts.chunks(tokens, longest)} * 32;
            INFO(heads << " heads, " << tokens << " tokens, " << sequences << " sequences");
            CHECK(part >= 64);
            CHECK(part_results(tokens, part) <= parts.most_results(tokens, sequences));
            CHECK(parts.most_results(tokens, sequences) <=
                  parts.most_results(tokens + 1, sequences + 1));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cubinery::gdn
