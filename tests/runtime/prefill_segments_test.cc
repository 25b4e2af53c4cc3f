// How long the segments are that sequences are cut into.
#include "runtime/gdn/prefill/segments.h"

#include <algorithm>
#include <cstdint>

#include "common/chunk/segments.h"
#include "tests/catch.h"

namespace cubinery::gdn::prefill_segments_test {
namespace {

constexpr int kSms = 132;

SegmentRule rule(int heads, bool wgmma, int warps_per_sm) {
  PrefillProblem problem;
  problem.heads = {.q = heads, .k = heads, .v = heads};
  const GdnPrefillScanKey scan{.segments = true, .wgmma = wgmma, .chunk_size = 32};
  return SegmentRule(problem, scan, warps_per_sm, kSms);
}

TEST_CASE("PartsOfOneSequenceGrowWithItsSquareRoot", "[cpu]") {
  const SegmentRule segments = rule(8, true, 24);
  CHECK(segments.chunks(8192, 8192) == 22);             // 12 segments
  CHECK(segments.chunks(32768, 32768) == 43);           // 24
  CHECK(rule(8, false, 8).chunks(32768, 32768) == 64);  // 16: as many as there are places
  CHECK(rule(1, false, 8).chunks(32768, 32768) == 32);  // 32: no sequence has more
  CHECK(segments.chunks(64, 64) == 2);                  // of 64 tokens at least
}

TEST_CASE("SeveralSequencesHaveFewerPartsEach", "[cpu]") {
  CHECK(rule(2, true, 24).chunks(4096, 4096) == 15);      // 9 segments
  CHECK(rule(2, true, 24).chunks(2 * 4096, 4096) == 16);  // 8
  CHECK(rule(2, true, 24).chunks(8 * 4096, 4096) == 22);  // 6
  // 198 / 64 segments of 4 x 8192 tokens, where one sequence would have 12 by itself.
  CHECK(rule(64, true, 24).chunks(4 * 8192, 8192) == 4 * 8192 / 32 / 6 + 1);
  // The longest one decides.
  CHECK(rule(2, true, 24).chunks(32768, 28672) > rule(2, true, 24).chunks(32768, 16384));
}

TEST_CASE("NoLaunchHasMoreResultsThanTheWorkspaceHolds", "[cpu]") {
  for (const int heads : {1, 2, 8, 64}) {
    for (const bool wgmma : {false, true}) {
      const SegmentRule segments = rule(heads, wgmma, 16);
      for (std::int64_t tokens = 1; tokens < 300000; tokens = tokens * 3 + 1) {
        for (const std::int64_t sequences : {1, 2, 7, 100}) {
          const std::int64_t average = (tokens + sequences - 1) / sequences;
          for (const std::int64_t longest : {average, (average + tokens) / 2, tokens}) {
            const std::int64_t segment = std::int64_t{segments.chunks(tokens, longest)} * 32;
            INFO(heads << " heads, " << tokens << " tokens, " << sequences << " sequences");
            CHECK(segment >= 64);
            CHECK(segment_results(tokens, segment) <= segments.most_results(tokens, sequences));
            CHECK(segments.most_results(tokens, sequences) <=
                  segments.most_results(tokens + 1, sequences + 1));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cubinery::gdn::prefill_segments_test
