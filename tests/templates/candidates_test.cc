// What tuning can measure compiles without warnings and without spills.  Every run compiles, of
// each template's candidates, a cover of the pairs of fields, fixed ones that the lists vary and
// the architecture among them; the hidden cases, [full], compile every candidate.  They are for
// before a tuning and after a change of a template; tuning itself leaves out what spills.
#include <vector>

#include "gdn_commit/fields.h"
#include "gdn_conv/fields.h"
#include "gdn_decode/fields.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "gdn_verify/fields.h"
#include "gdn_verify_wy/fields.h"
#include "runtime/gdn/conv/paths.h"
#include "tests/templates/compilations.h"
#include "tests/templates/problem_lists.h"

namespace cubinery {
namespace {

using gdn::BetaMode;
using gdn::GateMode;
using gdn::StateLayout;
using gdn::StoredStates;
using test::add;
using test::candidates_of;
using test::check_compile;
using test::Compilations;
using test::pairs_of;

struct States {
  const char* arch;
  StateLayout layout;
  DType dtype;
};

Compilations decode_candidates(const std::vector<States>& lists, GdnDecodeKey key = {}) {
  Compilations all;
  for (const States& states : lists) {
    key.states.layout = states.layout;
    key.states.dtype = states.dtype;
    add(candidates_of(key, states.arch), &all);
  }
  return all;
}

Compilations plain_decode_candidates() {
  return decode_candidates({{"sm_90a", StateLayout::kVK, DType::kF32},
                            {"sm_120a", StateLayout::kKV, DType::kF32},
                            {"sm_90a", StateLayout::kVK, DType::kBF16},
                            {"sm_100a", StateLayout::kKV, DType::kBF16}});
}

Compilations fp8_decode_candidates() {
  Compilations all = decode_candidates({{"sm_90a", StateLayout::kVK, DType::kF8E4M3},
                                        {"sm_100a", StateLayout::kKV, DType::kF8E4M3}});
  add(decode_candidates({{"sm_89", StateLayout::kVK, DType::kF8E5M2},
                         {"sm_90a", StateLayout::kKV, DType::kF8E5M2}},
                        {.output_norm = gdn::OutputNorm::kGatedRms}),
      &all);
  return all;
}

Compilations normed_decode_candidates() {
  return decode_candidates({{"sm_90a", StateLayout::kVK, DType::kF32},
                            {"sm_120a", StateLayout::kKV, DType::kF32},
                            {"sm_100a", StateLayout::kVK, DType::kBF16},
                            {"sm_90a", StateLayout::kKV, DType::kBF16}},
                           {.output_norm = gdn::OutputNorm::kGatedRms});
}

Compilations convolved_decode_candidates() {
  return candidates_of(GdnDecodeKey{.conv = {.width = 4}}, "sm_90a");
}

Compilations scan_candidates() {
  return candidates_of(
      GdnPrefillScanKey{.states = {.location = gdn::StateLocation::kPool}, .varlen = true},
      "sm_90a");
}

Compilations wgmma_scan_candidates() {
  Compilations all;
  for (const bool segments : {false, true}) {
    for (const bool threads_copy : {false, true}) {
      const GdnPrefillScanKey key{
          .varlen = true, .segments = segments, .wgmma = true, .threads_copy = threads_copy};
      add(candidates_of(key, "sm_90a"), &all);
    }
  }
  const GdnPrefillScanKey fused{.varlen = true, .wgmma = true, .makes_wy = true, .stages = 6};
  add(candidates_of(fused, "sm_90a"), &all);
  return all;
}

Compilations chunks_candidates() {
  return candidates_of(GdnPrefillChunksKey{.inputs = {.gate_mode = GateMode::kComputed,
                                                      .beta_mode = BetaMode::kLogit,
                                                      .use_qk_l2norm = true},
                                           .varlen = true},
                       "sm_80");
}

Compilations verify_candidates() {
  Compilations all = candidates_of(GdnVerifyKey{.states = {.dtype = DType::kBF16}}, "sm_90a");
  add(candidates_of(GdnVerifyKey{.states = {.layout = StateLayout::kKV}}, "sm_90a"), &all);
  for (const char* const arch : {"sm_80", "sm_90a", "sm_100a"}) {
    GdnVerifyKey normed{.output_norm = gdn::OutputNorm::kGatedRms};
    add(candidates_of(normed, arch), &all);
    normed.states.layout = StateLayout::kKV;
    normed.states.dtype = DType::kBF16;
    add(candidates_of(normed, arch), &all);
  }
  return all;
}

Compilations verify_wy_candidates() {
  Compilations all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    GdnVerifyWyKey key{.states = {.dtype = dtype}, .stored_states = StoredStates::kEvery};
    add(candidates_of(key, "sm_80"), &all);
    key.tree = true;
    add(candidates_of(key, "sm_80"), &all);
    key.tree = false;
    key.draft_tokens = 4;
    add(candidates_of(key, "sm_80"), &all);
    // A kernel has the fewest registers where only the last state is stored.
    key.stored_states = StoredStates::kLast;
    add(candidates_of(key, "sm_90a"), &all);
    key.draft_tokens = 8;
    add(candidates_of(key, "sm_80"), &all);
    key.states.layout = StateLayout::kKV;
    add(candidates_of(key, "sm_90a"), &all);
  }
  return all;
}

Compilations normed_verify_wy_candidates() {
  Compilations all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    GdnVerifyWyKey key{.states = {.dtype = dtype}, .output_norm = gdn::OutputNorm::kGatedRms};
    for (const int tokens : {4, 8, 16}) {
      key.draft_tokens = tokens;
      key.states.store = true;
      key.stored_states = StoredStates::kLast;
      add(candidates_of(key, "sm_80"), &all);
      key.stored_states = StoredStates::kEvery;
      add(candidates_of(key, "sm_90a"), &all);
      key.states.store = false;
      add(candidates_of(key, "sm_100a"), &all);
    }
  }
  return all;
}

Compilations commit_candidates() {
  Compilations all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    add(candidates_of(GdnCommitKey{.states = {.dtype = dtype}}, "sm_80"), &all);
    add(candidates_of(GdnCommitKey{.states = {.dtype = dtype, .layout = StateLayout::kKV},
                                   .draft_tokens = 16},
                      "sm_90a"),
        &all);
    for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
      for (const int draft_tokens : {8, 16}) {
        add(candidates_of(GdnCommitKey{.key_dim = 256,
                                       .value_dim = 256,
                                       .states = {.dtype = dtype, .layout = layout},
                                       .draft_tokens = draft_tokens},
                          "sm_90a"),
            &all);
      }
    }
  }
  return all;
}

Compilations conv_candidates() {
  std::vector<gdn::ConvProblem> problems = test::served_convs();
  for (const gdn::ConvProblem& problem : test::served_convs()) {
    if (!problem.inputs.use_qk_l2norm) continue;
    problems.push_back(problem);  // where a state lies takes registers, too
    problems.back().states = {};
  }
  Compilations all;
  for (const gdn::ConvProblem& problem : problems) {
    add(candidates_of(std::get<0>(gdn::conv_portable().fixed_keys(problem)), "sm_90a"), &all);
  }
  return all;
}

TEST_CASE("PairsOfDecodeCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(plain_decode_candidates()));
}
TEST_CASE("AllDecodeCandidatesOf128ChannelsCompile", "[.full][nvrtc]") {
  check_compile(plain_decode_candidates());
}

TEST_CASE("PairsOfFp8DecodeCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(fp8_decode_candidates()));
}
TEST_CASE("AllFp8DecodeCandidatesOf128ChannelsCompile", "[.full][nvrtc]") {
  check_compile(fp8_decode_candidates());
}

TEST_CASE("PairsOfNormedDecodeCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(normed_decode_candidates()));
}
TEST_CASE("AllNormedDecodeCandidatesOf128ChannelsCompile", "[.full][nvrtc]") {
  check_compile(normed_decode_candidates());
}

TEST_CASE("PairsOfConvolvedDecodeCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(convolved_decode_candidates()));
}
TEST_CASE("AllConvolvedDecodeCandidatesOf128ChannelsCompile", "[.full][nvrtc]") {
  check_compile(convolved_decode_candidates());
}

TEST_CASE("PairsOfScanCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(scan_candidates()));
}
TEST_CASE("AllScanCandidatesOf128ChannelsInBf16Compile", "[.full][nvrtc]") {
  check_compile(scan_candidates());
}

// Serialised wgmma is in the log, which is a fault.
TEST_CASE("PairsOfWgmmaScanCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(wgmma_scan_candidates()));
}
TEST_CASE("AllWgmmaScanCandidatesOf128ChannelsCompile", "[.full][nvrtc]") {
  check_compile(wgmma_scan_candidates());
}

TEST_CASE("AllChunksCandidatesOf128ChannelsCompile", "[nvrtc][sweep]") {
  check_compile(chunks_candidates());
}

TEST_CASE("PairsOfVerifyCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(verify_candidates()));
}
TEST_CASE("AllVerifyCandidatesOf128ChannelsCompile", "[.full][nvrtc]") {
  check_compile(verify_candidates());
}

TEST_CASE("PairsOfVerifyWyCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(verify_wy_candidates()));
}
TEST_CASE("AllVerifyWyCandidatesOf128ChannelsCompile", "[.full][nvrtc]") {
  check_compile(verify_wy_candidates());
}

TEST_CASE("PairsOfNormedVerifyWyCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(normed_verify_wy_candidates()));
}
TEST_CASE("AllNormedVerifyWyCandidatesOf128ChannelsCompile", "[.full][nvrtc]") {
  check_compile(normed_verify_wy_candidates());
}

TEST_CASE("PairsOfCommitCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(commit_candidates()));
}
TEST_CASE("AllCommitCandidatesOf128And256ChannelsCompile", "[.full][nvrtc]") {
  check_compile(commit_candidates());
}

TEST_CASE("PairsOfConvCandidatesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(conv_candidates()));
}
TEST_CASE("AllConvCandidatesOfServedProblemsCompile", "[.full][nvrtc]") {
  check_compile(conv_candidates());
}

}  // namespace
}  // namespace cubinery
