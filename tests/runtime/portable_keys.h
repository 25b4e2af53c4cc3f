// The portable paths' configurations as keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/gdn/conv/paths.h"
#include "runtime/gdn/decode/paths.h"
#include "runtime/gdn/prefill/paths.h"
#include "runtime/gdn/verify/commit_paths.h"
#include "runtime/gdn/verify/paths.h"
#include "runtime/operator/planner.h"
#include "tests/catch.h"

namespace cubinery::test {

// A typical GPU of sm_90a, with so much shared memory per block.
inline Target sm_90(int shared_bytes_per_block = 227 * 1024) {
  Target target = typical_target({9, 0, 'a'});
  target.shared_bytes_per_block = shared_bytes_per_block;
  return target;
}

template <class Problem>
Planner<Problem> planner_of(const Problem& problem, const Target& target = sm_90(),
                            const std::vector<std::string>& paths = {}) {
  auto planner = Planner<Problem>::create(problem, target, paths);
  REQUIRE(planner);
  return *std::move(planner);
}

// The values of the configuration that has this text, which there is.  `paths`: Options::paths.
template <class Problem>
std::vector<TunedValue> values_in(const Problem& problem, const std::string& text,
                                  const std::vector<std::string>& paths = {}) {
  for (Configuration& configuration : planner_of(problem, sm_90(), paths).space().configurations) {
    if (to_text(configuration.values) == text) return std::move(configuration.values);
  }
  FAIL("not a configuration: " << text);
  return {};
}

// The two defaults of decode.
struct DecodeKeys {
  GdnDecodeKey wide;
  GdnDecodeKey narrow;
};
inline DecodeKeys decode_keys(const gdn::DecodeProblem& problem) {
  const auto keys = gdn::decode_portable().default_keys(problem, sm_90());
  REQUIRE(keys.size() == 2);
  return {std::get<0>(keys[0]), std::get<0>(keys[1])};
}
inline std::vector<TunedValue> decode_values(const GdnDecodeKey& key) {
  return gdn::decode_portable().values_of({key});
}
inline std::optional<GdnDecodeKey> decode_key(const gdn::DecodeProblem& problem,
                                              const std::vector<TunedValue>& values) {
  const auto keys = gdn::decode_portable().keys_of(problem, values, sm_90());
  return keys ? std::optional(std::get<0>(*keys)) : std::nullopt;
}

// The two defaults of each path of verify; none of `wy` where it does not run.
struct VerifyKeys {
  std::vector<GdnVerifyKey> steps{};
  std::vector<GdnVerifyWyKey> wy{};
};
inline VerifyKeys verify_keys(const gdn::VerifyProblem& problem) {
  VerifyKeys found;
  for (const auto& [key] : gdn::verify_portable().default_keys(problem, sm_90())) {
    found.steps.push_back(key);
  }
  if (gdn::verify_wy().why_not(problem, sm_90())) return found;
  for (const auto& [key] : gdn::verify_wy().default_keys(problem, sm_90())) {
    found.wy.push_back(key);
  }
  return found;
}

// The defaults of commit.
inline std::vector<GdnCommitKey> commit_keys(const gdn::CommitProblem& problem) {
  std::vector<GdnCommitKey> found;
  for (const auto& [key] : gdn::commit_wy().default_keys(problem, sm_90())) found.push_back(key);
  return found;
}

// The defaults of the convolution.
inline std::vector<GdnConvKey> conv_keys(const gdn::ConvProblem& problem) {
  std::vector<GdnConvKey> found;
  for (const auto& [key] : gdn::conv_portable().default_keys(problem, sm_90())) {
    found.push_back(key);
  }
  return found;
}

// The defaults of prefill: one key of the first kernel with several of the second.
struct PrefillKeys {
  GdnPrefillChunksKey chunks{};
  std::vector<GdnPrefillScanKey> scans{};
};
inline PrefillKeys prefill_keys(const gdn::PrefillProblem& problem,
                                int shared_bytes_per_block = 227 * 1024) {
  PrefillKeys found;
  for (const auto& [chunks, scan] :
       gdn::prefill_portable().default_keys(problem, sm_90(shared_bytes_per_block))) {
    if (!found.scans.empty()) CHECK(canonical(chunks) == canonical(found.chunks));
    found.chunks = chunks;
    found.scans.push_back(scan);
  }
  return found;
}
inline std::vector<TunedValue> prefill_values(const GdnPrefillChunksKey& chunks,
                                              const GdnPrefillScanKey& scan) {
  const gdn::PrefillKeyPath& path = scan.makes_wy ? gdn::prefill_hopper_fused()
                                    : scan.wgmma  ? gdn::prefill_hopper()
                                                  : gdn::prefill_portable();
  return path.values_of({chunks, scan});
}

struct PrefillPair {
  GdnPrefillChunksKey chunks;
  GdnPrefillScanKey scan;
};
inline std::optional<PrefillPair> prefill_pair(const gdn::PrefillProblem& problem,
                                               const std::vector<TunedValue>& values,
                                               int shared_bytes_per_block = 227 * 1024) {
  const Target target = sm_90(shared_bytes_per_block);
  for (const gdn::PrefillKeyPath* path :
       {&gdn::prefill_portable(), &gdn::prefill_hopper(), &gdn::prefill_hopper_fused()}) {
    const auto keys = path->keys_of(problem, values, target);
    if (keys) return PrefillPair{std::get<0>(*keys), std::get<1>(*keys)};
  }
  return std::nullopt;
}

}  // namespace cubinery::test
