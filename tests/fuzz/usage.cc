#include "cache/eviction.h"
#include "cache/trust.h"
#include "runtime/jit/options_text.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

// What a cache directory says of its size, and what a variable says of whom to trust.
CUBINERY_FUZZ_TARGET(usage) {
  const std::int64_t now = 1'700'000'000 * kNsPerSecond;
  if (const auto bytes = parse_usage(input, now)) {
    fuzz::require(input.starts_with("measured ") && input.ends_with("\n"));
    fuzz::require(!parse_usage(input, now + 2 * 3600 * kNsPerSecond + 1));
    const bool has_room = input.size() + 3 < Env::kMaxLogBytes && *bytes >> 62 == 0;
    const auto more = parse_usage(std::string(input) + "+1\n", now);
    fuzz::require(!has_room || more == *bytes + 1);
  }
  if (const auto trust = parse_trust(input)) {
    const std::string text = to_text(*trust);
    const auto again = parse_trust(text);
    fuzz::require(again && to_text(*again) == text);
  }
}
