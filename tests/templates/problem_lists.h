// Problems of every operator that have, between them, each option, extreme and odd sizes, and what
// engines serve.
#pragma once

#include <utility>
#include <vector>

#include "cubinery/gdn.h"

namespace cubinery::test {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::CommitProblem;
using gdn::ConvProblem;
using gdn::ConvStateLayout;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;
using gdn::StoredStates;
using gdn::VerifyProblem;

// Each option at least once.
inline std::vector<DecodeProblem> decode_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  return {{},
          {.dtype = DType::kF32, .output_dtype = DType::kF32},
          {.dtype = DType::kF16, .output_dtype = DType::kF16},
          {.inputs = {.gate_dtype = DType::kBF16, .beta_dtype = DType::kF16}},
          {.states = {.dtype = DType::kF16}},
          {.states = {.dtype = DType::kBF16}},
          {.states = {.dtype = DType::kBF16, .layout = StateLayout::kKV}},
          {.states = {.layout = StateLayout::kKV}},
          {.states = {.location = kPool}},
          {.states = {.index_dtype = DType::kI64, .location = kPool}},
          {.states = {.location = kPool}},
          {.states = {.location = kPool}},
          {.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}},
          {.inputs = {.gate_mode = GateMode::kAlpha, .beta_mode = BetaMode::kLogit}},
          {.inputs = {.a_log_dtype = DType::kBF16,
                      .dt_bias_dtype = DType::kF16,
                      .gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kDoubledLogit}},
          {.inputs = {.use_qk_l2norm = true}},
          {.states = {.has_initial = false}},
          {.states = {.store = false}},
          {.states = {.has_initial = false, .store = false}},
          {.output_norm = gdn::OutputNorm::kGatedRms},
          {.states = {.dtype = DType::kBF16, .layout = StateLayout::kKV},
           .output_norm = gdn::OutputNorm::kGatedRms,
           .norm_weight_dtype = DType::kF16},
          {.output_norm = gdn::OutputNorm::kSigmoidGatedRms}};
}

// Extreme and odd head sizes.
inline std::vector<DecodeProblem> decode_head_sizes() {
  std::vector<DecodeProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{16, 16}, std::pair{48, 96}, std::pair{96, 48}, std::pair{256, 256},
          std::pair{240, 240}}) {
      problems.push_back(
          {.key_dim = key_dim, .value_dim = value_dim, .states = {.layout = layout}});
    }
  }
  return problems;
}

// Each option with a convolution in front at least once, and the sizes with the most channels to a
// thread.
inline std::vector<DecodeProblem> convolved_decodes() {
  const auto convolved = [](DecodeProblem problem) {
    problem.conv.width = 4;
    return problem;
  };
  std::vector<DecodeProblem> problems;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const ConvStateLayout layout : {ConvStateLayout::kColumns, ConvStateLayout::kChannels}) {
      for (const bool other : {false, true}) {
        DecodeProblem& problem = problems.emplace_back(convolved({.dtype = dtype}));
        problem.conv = {.width = other ? 3 : 4,
                        .activation = other ? gdn::Activation::kNone : gdn::Activation::kSilu,
                        .has_bias = other,
                        .weight_dtype = other ? DType::kF16 : DType::kBF16,
                        .state_dtype = dtype,
                        .state_layout = layout,
                        .whole_window = other};
        problem.states.layout = other ? StateLayout::kKV : StateLayout::kVK;
        problem.inputs.use_qk_l2norm = true;
      }
    }
  }
  for (const auto& [key_dim, value_dim] :
       {std::pair{16, 16}, std::pair{48, 96}, std::pair{256, 256}, std::pair{240, 240}}) {
    for (const auto norm : {gdn::OutputNorm::kNone, gdn::OutputNorm::kGatedRms}) {
      problems.push_back(
          convolved({.key_dim = key_dim, .value_dim = value_dim, .output_norm = norm}));
    }
  }
  problems.push_back(convolved({.states = {.has_initial = false}}));
  problems.push_back(convolved({.states = {.store = false}}));
  problems.push_back(convolved({.states = {.has_initial = false, .store = false}}));
  return problems;
}

// Normed heads of which blocks have the most warps.
inline std::vector<DecodeProblem> normed_decode_head_sizes() {
  std::vector<DecodeProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int key_dim : {128, 240, 256}) {
        for (const int value_dim : {16, 96, 208, 240, 256}) {
          problems.push_back({.key_dim = key_dim,
                              .value_dim = value_dim,
                              .inputs = {.use_qk_l2norm = true},
                              .states = {.dtype = dtype, .layout = layout},
                              .output_norm = gdn::OutputNorm::kGatedRms});
        }
      }
    }
  }
  return problems;
}

inline std::vector<DecodeProblem> square_decode_head_sizes() {
  std::vector<DecodeProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int dim = 16; dim <= 256; dim += 16) {
        problems.push_back(
            {.key_dim = dim, .value_dim = dim, .states = {.dtype = dtype, .layout = layout}});
      }
    }
  }
  return problems;
}

// Rows of 16 and 48 bytes have no whole word for each lane.
inline std::vector<DecodeProblem> fp8_decode_head_sizes(DType dtype) {
  std::vector<DecodeProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const int dim : {16, 48, 64, 128, 240, 256}) {
      for (const auto norm : {gdn::OutputNorm::kNone, gdn::OutputNorm::kGatedRms}) {
        problems.push_back({.key_dim = dim,
                            .value_dim = dim,
                            .inputs = {.use_qk_l2norm = true},
                            .states = {.dtype = dtype, .layout = layout},
                            .output_norm = norm});
      }
    }
  }
  return problems;
}

inline std::vector<DecodeProblem> fp8_decode_options() {
  std::vector<DecodeProblem> problems = decode_options();
  for (std::size_t i = 0; i < problems.size(); ++i) {
    problems[i].states.dtype = i % 2 == 0 ? DType::kF8E4M3 : DType::kF8E5M2;
  }
  return problems;
}

// As engines serve Qwen3-Next and Qwen3.5 with three drafts, and with more than seven.
inline std::vector<VerifyProblem> served_verifications() {
  VerifyProblem problem{.inputs = {.gate_dtype = DType::kBF16,
                                   .beta_dtype = DType::kBF16,
                                   .dt_bias_dtype = DType::kBF16,
                                   .gate_mode = GateMode::kComputed,
                                   .beta_mode = BetaMode::kLogit,
                                   .use_qk_l2norm = true},
                        .states = {.location = StateLocation::kPool},
                        .varlen = true,
                        .stored_states = StoredStates::kEvery,
                        .from_accepted = true};
  VerifyProblem more = problem;
  more.draft_tokens = 16;
  more.states.dtype = DType::kBF16;
  VerifyProblem tree = problem, more_of_tree = more;
  tree.tree = more_of_tree.tree = true;
  return {problem, more, tree, more_of_tree};
}

// Each option that decode has not, with the layouts and dtypes of states that the others leave.
inline std::vector<VerifyProblem> verify_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  constexpr StoredStates kEvery = StoredStates::kEvery;
  constexpr StateLayout kKV = StateLayout::kKV;
  return {{},
          {.dtype = DType::kF32, .output_dtype = DType::kF32, .stored_states = kEvery},
          {.dtype = DType::kF32,
           .output_dtype = DType::kF32,
           .inputs = {.gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kLogit,
                      .use_qk_l2norm = true},
           .states = {.layout = kKV, .location = kPool},
           .varlen = true,
           .stored_states = kEvery,
           .from_accepted = true},
          {.dtype = DType::kF16,
           .output_dtype = DType::kF16,
           .states = {.dtype = DType::kF16},
           .draft_tokens = 16,
           .stored_states = kEvery},
          {.states = {.layout = kKV}, .draft_tokens = 16},
          {.states = {.dtype = DType::kBF16, .layout = kKV}, .stored_states = kEvery},
          {.states = {.dtype = DType::kBF16}, .round_each_token = true},
          {.states = {.store = false}, .draft_tokens = 16},
          {.states = {.has_initial = false}, .stored_states = kEvery},
          {.states = {.has_initial = false, .store = false}},
          {.varlen = true, .cu_seqlens_dtype = DType::kI64},
          {.from_accepted = true, .accepted_dtype = DType::kI64},
          {.states = {.location = kPool}, .stored_states = kEvery, .from_accepted = true},
          {.states = {.index_dtype = DType::kI64, .layout = kKV, .location = kPool},
           .draft_tokens = 16,
           .varlen = true,
           .stored_states = kEvery,
           .from_accepted = true},
          {.stored_states = kEvery, .tree = true, .parents_dtype = DType::kI64},
          {.dtype = DType::kF16,
           .output_dtype = DType::kF16,
           .states = {.dtype = DType::kF16, .has_initial = false},
           .draft_tokens = 16,
           .stored_states = kEvery,
           .tree = true},
          {.output_dtype = DType::kF32,
           .states = {.layout = kKV, .store = false},
           .draft_tokens = 16,
           .tree = true},
          {.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}},
          {.inputs = {.gate_mode = GateMode::kAlpha, .beta_mode = BetaMode::kLogit}},
          {.output_norm = gdn::OutputNorm::kGatedRms},
          {.dtype = DType::kF32,
           .output_dtype = DType::kF32,
           .output_norm = gdn::OutputNorm::kSigmoidGatedRms},
          {.states = {.dtype = DType::kBF16},
           .stored_states = kEvery,
           .output_norm = gdn::OutputNorm::kGatedRms,
           .norm_weight_dtype = DType::kBF16},
          {.states = {.layout = kKV, .store = false},
           .draft_tokens = 16,
           .tree = true,
           .output_norm = gdn::OutputNorm::kGatedRms}};
}

// Extreme and odd head sizes.
inline std::vector<VerifyProblem> verify_head_sizes() {
  std::vector<VerifyProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{16, 16}, std::pair{48, 96}, std::pair{240, 240}, std::pair{256, 256}}) {
      problems.push_back({.key_dim = key_dim,
                          .value_dim = value_dim,
                          .states = {.dtype = DType::kBF16, .layout = layout},
                          .stored_states = StoredStates::kEvery});
      problems.push_back(problems.back());
      problems.back().tree = true;
      problems.push_back(problems.back());
      problems.back().output_norm = gdn::OutputNorm::kGatedRms;
      problems.push_back(problems.back());
      problems.back().tree = false;
    }
  }
  return problems;
}

// The commits of verifications that keep no states, as engines serve those models.
inline std::vector<CommitProblem> served_commits() {
  std::vector<CommitProblem> problems;
  for (const VerifyProblem& verify : served_verifications()) {
    problems.push_back({.inputs = verify.inputs,
                        .states = verify.states,
                        .draft_tokens = verify.draft_tokens,
                        .varlen = verify.varlen});
  }
  return problems;
}

// Each option at least once.
inline std::vector<CommitProblem> commit_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  constexpr StateLayout kKV = StateLayout::kKV;
  return {{},
          {.dtype = DType::kF16, .states = {.dtype = DType::kF16}, .draft_tokens = 16},
          {.states = {.layout = kKV}, .draft_tokens = 16},
          {.states = {.dtype = DType::kBF16, .layout = kKV}},
          {.varlen = true, .cu_seqlens_dtype = DType::kI64, .accepted_dtype = DType::kI64},
          {.states = {.location = kPool}},
          {.states = {.index_dtype = DType::kI64, .layout = kKV, .location = kPool},
           .draft_tokens = 16,
           .varlen = true},
          {.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}},
          {.inputs = {.gate_dtype = DType::kF16,
                      .beta_dtype = DType::kBF16,
                      .gate_mode = GateMode::kAlpha,
                      .beta_mode = BetaMode::kLogit}},
          {.inputs = {.a_log_dtype = DType::kBF16,
                      .dt_bias_dtype = DType::kF16,
                      .gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kDoubledLogit,
                      .use_qk_l2norm = true},
           .draft_tokens = 16}};
}

// Extreme and odd head sizes.
inline std::vector<CommitProblem> commit_head_sizes(int draft_tokens) {
  std::vector<CommitProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [key_dim, value_dim] :
           {std::pair{16, 16}, std::pair{48, 96}, std::pair{240, 240}, std::pair{256, 256}}) {
        problems.push_back({.key_dim = key_dim,
                            .value_dim = value_dim,
                            .states = {.dtype = dtype, .layout = layout},
                            .draft_tokens = draft_tokens});
      }
    }
  }
  return problems;
}

// As engines serve Qwen3-Next and Qwen3.5: packed, or in decoding steps of one token or a few, with
// the gates and norms of the layer behind it or without; and Kimi-K3, packed with its gates.
inline std::vector<ConvProblem> served_convs() {
  const ConvProblem columns{
      .split_qkv = true, .states = {.location = StateLocation::kPool}, .varlen = true};
  ConvProblem steps = columns, channels = columns, accepted = columns;
  steps.varlen = false;
  channels.states.layout = accepted.states.layout = ConvStateLayout::kChannels;
  accepted.from_accepted = true;
  std::vector<ConvProblem> problems{columns, steps, channels, accepted};
  for (ConvProblem fused : {columns, steps}) {
    fused.inputs = {.gate_dtype = DType::kBF16,
                    .beta_dtype = DType::kBF16,
                    .dt_bias_dtype = DType::kBF16,
                    .gate_mode = GateMode::kComputed,
                    .beta_mode = BetaMode::kLogit,
                    .use_qk_l2norm = true};
    problems.push_back(fused);
  }
  ConvProblem& rows = problems.emplace_back(channels);
  rows.weight_dtype = DType::kF32;
  rows.inputs = {.gate_dtype = DType::kBF16,
                 .beta_dtype = DType::kBF16,
                 .decay = gdn::Decay::kChannel,
                 .gate_mode = GateMode::kLowerBound,
                 .beta_mode = BetaMode::kLogit,
                 .use_qk_l2norm = true};
  return problems;
}

// Each option at least once.
inline std::vector<ConvProblem> conv_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  constexpr ConvStateLayout kChannels = ConvStateLayout::kChannels;
  return {{},
          {.width = 2},
          {.width = 3, .states = {.whole_window = true}},
          {.dtype = DType::kF32, .weight_dtype = DType::kF32, .states = {.dtype = DType::kF32}},
          {.dtype = DType::kF16, .weight_dtype = DType::kF32, .states = {.dtype = DType::kF16}},
          {.weight_dtype = DType::kF16, .states = {.dtype = DType::kF32, .layout = kChannels}},
          {.activation = gdn::Activation::kNone, .has_bias = true},
          {.has_bias = true, .states = {.layout = kChannels, .whole_window = true}},
          {.states = {.location = kPool}},
          {.states = {.index_dtype = DType::kI64, .location = kPool}},
          {.states = {.has_initial = false}, .varlen = true},
          {.states = {.store = false}, .varlen = true, .cu_seqlens_dtype = DType::kI64},
          {.states = {.has_initial = false, .store = false}},
          {.from_accepted = true},
          {.circular_state = true},
          {.width = 3,
           .states = {.layout = kChannels, .location = kPool},
           .varlen = true,
           .circular_state = true},
          {.stored_states = StoredStates::kEvery},
          {.width = 3,
           .states = {.layout = kChannels, .location = kPool},
           .varlen = true,
           .stored_states = StoredStates::kEvery,
           .from_accepted = true},
          {.dtype = DType::kF32,
           .has_bias = true,
           .states = {.dtype = DType::kF32, .location = kPool, .whole_window = true},
           .varlen = true,
           .stored_states = StoredStates::kEvery,
           .from_accepted = true},
          {.checkpoints = gdn::Checkpoints::kBefore},
          {.states = {.location = kPool, .whole_window = true},
           .varlen = true,
           .checkpoints = gdn::Checkpoints::kBefore},
          {.dtype = DType::kF32,
           .has_bias = true,
           .states = {.dtype = DType::kF32, .layout = kChannels},
           .varlen = true,
           .checkpoints = gdn::Checkpoints::kAfter},
          {.states = {.location = kPool}, .varlen = true, .checkpoints = gdn::Checkpoints::kAt},
          {.width = 3,
           .states = {.index_dtype = DType::kI64, .layout = kChannels, .whole_window = true},
           .checkpoints = gdn::Checkpoints::kAt},
          {.states = {.layout = kChannels},
           .varlen = true,
           .from_accepted = true,
           .accepted_dtype = DType::kI64},
          {.split_qkv = true,
           .inputs = {.gate_dtype = DType::kF16,
                      .a_log_dtype = DType::kBF16,
                      .dt_bias_dtype = DType::kF16,
                      .gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kDoubledLogit}},
          {.split_qkv = true,
           .inputs = {.gate_mode = GateMode::kLowerBound, .beta_mode = BetaMode::kOne}},
          {.split_qkv = true,
           .inputs = {.gate_dtype = DType::kBF16,
                      .beta_dtype = DType::kBF16,
                      .decay = gdn::Decay::kChannel,
                      .gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kLogit,
                      .use_qk_l2norm = true},
           .varlen = true},
          {.key_dim = 24,
           .dtype = DType::kF32,
           .split_qkv = true,
           .inputs = {.a_log_dtype = DType::kBF16,
                      .dt_bias_dtype = DType::kF16,
                      .decay = gdn::Decay::kChannel,
                      .gate_mode = GateMode::kLowerBound,
                      .beta_mode = BetaMode::kOne}},
          {.split_qkv = true,
           .inputs = {
               .gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne, .use_qk_l2norm = true}}};
}

// Heads that are normalised, of extreme and odd sizes.
inline std::vector<ConvProblem> conv_head_sizes() {
  std::vector<ConvProblem> problems;
  for (const int key_dim : {8, 24, 48, 96, 128, 136, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const bool varlen : {false, true}) {
        problems.push_back({.key_dim = key_dim,
                            .dtype = dtype,
                            .split_qkv = true,
                            .inputs = {.gate_mode = GateMode::kNone,
                                       .beta_mode = BetaMode::kOne,
                                       .use_qk_l2norm = true},
                            .states = {.dtype = dtype},
                            .varlen = varlen});
        if (key_dim != 136) continue;
        problems.push_back(problems.back());
        problems.back().stored_states = StoredStates::kEvery;
        problems.push_back(problems.back());
        problems.back().stored_states = StoredStates::kLast;
        problems.back().checkpoints = gdn::Checkpoints::kBefore;
        problems.push_back(problems.back());
        problems.back().checkpoints = gdn::Checkpoints::kAt;
      }
    }
  }
  return problems;
}

// As engines serve Qwen3-Next and Qwen3.5.
inline PrefillProblem served_prefill() {
  return {.inputs = {.gate_dtype = DType::kBF16,
                     .beta_dtype = DType::kBF16,
                     .dt_bias_dtype = DType::kBF16,
                     .gate_mode = GateMode::kComputed,
                     .beta_mode = BetaMode::kLogit,
                     .use_qk_l2norm = true},
          .states = {.location = StateLocation::kPool},
          .varlen = true};
}

// The problems whose registers and shared memory differ most from those.
inline std::vector<PrefillProblem> prefill_extremes() {
  return {{.dtype = DType::kF32,
           .output_dtype = DType::kF32,
           .states = {.layout = StateLayout::kKV},
           .checkpoints = Checkpoints::kAfter},
          {.dtype = DType::kF32,
           .output_dtype = DType::kF32,
           .states = {.layout = StateLayout::kKV},
           .checkpoints = Checkpoints::kAt},
          {.key_dim = 256, .value_dim = 256},
          {.key_dim = 240, .value_dim = 240, .dtype = DType::kF32}};
}

// Each option at least once.
inline std::vector<PrefillProblem> prefill_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  return {
      {.dtype = DType::kF16, .output_dtype = DType::kF16, .states = {.layout = StateLayout::kKV}},
      {.output_dtype = DType::kF32},
      {.inputs = {.gate_dtype = DType::kBF16, .beta_dtype = DType::kF16}},
      {.states = {.dtype = DType::kF16}},
      {.states = {.dtype = DType::kBF16, .layout = StateLayout::kKV}},
      {.varlen = true, .cu_seqlens_dtype = DType::kI64},
      {.states = {.index_dtype = DType::kI64, .location = kPool}},
      {.states = {.location = kPool}},
      {.states = {.location = kPool}},
      {.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}},
      {.inputs = {.gate_mode = GateMode::kAlpha, .beta_mode = BetaMode::kLogit}},
      {.inputs = {.a_log_dtype = DType::kBF16,
                  .dt_bias_dtype = DType::kF16,
                  .gate_mode = GateMode::kComputed,
                  .beta_mode = BetaMode::kDoubledLogit}},
      {.inputs = {.use_qk_l2norm = true}},
      {.states = {.has_initial = false}},
      {.states = {.store = false}},
      {.states = {.has_initial = false, .store = false}},
      {.varlen = true, .checkpoints = Checkpoints::kBefore, .checkpoint_every = 32},
      {.states = {.layout = StateLayout::kKV},
       .checkpoints = Checkpoints::kAfter,
       .checkpoint_every = 16},
      {.states = {.location = kPool}, .varlen = true, .checkpoints = Checkpoints::kAt},
      {.states = {.index_dtype = DType::kI64},
       .checkpoints = Checkpoints::kAt,
       .checkpoint_every = 16}};
}

// With a decay for each channel: each gate and dtype, and the largest rows that every architecture
// has shared memory for.
inline std::vector<PrefillProblem> channel_prefills() {
  std::vector<PrefillProblem> problems = {
      {.inputs = {.gate_mode = GateMode::kLowerBound, .use_qk_l2norm = true}, .varlen = true},
      {.inputs = {.gate_dtype = DType::kBF16, .gate_mode = GateMode::kComputed},
       .states = {.location = StateLocation::kPool},
       .checkpoints = Checkpoints::kAt},
      {.dtype = DType::kF16, .inputs = {.gate_mode = GateMode::kLowerBound}},
      {.dtype = DType::kF32,
       .output_dtype = DType::kF32,
       .inputs = {.gate_mode = GateMode::kAlpha},
       .states = {.layout = StateLayout::kKV},
       .checkpoints = Checkpoints::kBefore},
      {.key_dim = 16, .value_dim = 16, .dtype = DType::kF32},
      {.key_dim = 96, .value_dim = 48, .inputs = {.gate_mode = GateMode::kLowerBound}},
      {.key_dim = 256, .value_dim = 256, .states = {.dtype = DType::kBF16}},
      {.key_dim = 224, .value_dim = 224, .dtype = DType::kF32}};
  for (PrefillProblem& problem : problems) problem.inputs.decay = gdn::Decay::kChannel;
  return problems;
}

inline std::vector<PrefillProblem> prefill_head_sizes() {
  std::vector<PrefillProblem> problems;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{16, 16}, std::pair{64, 64}, std::pair{96, 48}, std::pair{128, 96},
          std::pair{192, 16}, std::pair{240, 240}, std::pair{256, 256}}) {
      problems.push_back({.key_dim = key_dim, .value_dim = value_dim, .dtype = dtype});
    }
  }
  return problems;
}

}  // namespace cubinery::test
