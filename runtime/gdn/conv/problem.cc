#include "runtime/gdn/conv/operator.h"

#include <fmt/format.h>

#include "gdn_conv/key.h"
#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

// What only makes sense where there are q, k and v.
Status check_unsplit(const ConvProblem& problem) {
  const Inputs& inputs = problem.inputs;
  if (writes_g(problem)) {
    return bad_field(kConvOp, "gate_mode", value_text(inputs.gate_mode),
                     "none (others need split_qkv = true)");
  }
  if (writes_beta(problem)) {
    return bad_field(kConvOp, "beta_mode", value_text(inputs.beta_mode),
                     "one (others need split_qkv = true)");
  }
  if (!inputs.use_qk_l2norm) return {};
  return bad_field(kConvOp, "use_qk_l2norm", "true", "false (true needs split_qkv = true)");
}

Status check_conv_dim(std::string_view name, int dim) {
  if (is_conv_head_dim(dim)) return {};
  return bad_field(kConvOp, name, value_text(dim), "multiples of 8 from 8 to 256");
}

Status check_split(const ConvProblem& problem) {
  CUBINERY_RETURN_IF_ERROR(check_heads(kConvOp, problem.heads));
  CUBINERY_RETURN_IF_ERROR(check_conv_dim("key_dim", problem.key_dim));
  CUBINERY_RETURN_IF_ERROR(check_conv_dim("value_dim", problem.value_dim));
  const std::int64_t channels = split_channels(problem);
  if (channels <= kMaxChannels) return {};
  return bad_field(kConvOp, "v_heads", value_text(problem.heads.v),
                   fmt::format("q, k and v of up to {} channels together; these have {}",
                               kMaxChannels, channels));
}

Status check_checkpoints(const ConvProblem& problem) {
  if (problem.checkpoints == Checkpoints::kNone) return {};
  const auto refused = [&](std::string_view with) {
    return bad_field(kConvOp, "checkpoints", value_text(problem.checkpoints),
                     fmt::format("none (with {} there are none)", with));
  };
  if (stores_every(problem)) return refused("stored_states = every");
  if (problem.from_accepted) return refused("from_accepted");
  if (problem.checkpoint_every >= 1 || problem.checkpoints == Checkpoints::kAt) return {};
  return bad_field(kConvOp, "checkpoint_every", value_text(problem.checkpoint_every), "1 and more");
}

Status check_circular(const ConvProblem& problem) {
  if (!problem.circular_state) return {};
  const auto refused = [&](std::string_view with) {
    return bad_field(kConvOp, "circular_state", "true", fmt::format("false (with {})", with));
  };
  if (problem.from_accepted) return refused("from_accepted");
  if (stores_every(problem)) return refused("stored_states = every");
  if (problem.checkpoints != Checkpoints::kNone) return refused("checkpoints");
  if (problem.states.whole_window) return refused("whole_window");
  constexpr std::string_view kNeeded = "true (circular_state needs it)";
  if (!problem.states.has_initial) {
    return bad_field(kConvOp, "has_initial_state", "false", kNeeded);
  }
  if (problem.states.store) return {};
  return bad_field(kConvOp, "store_state", "false", kNeeded);
}

}  // namespace

Status ConvProblem::check() const {
  CUBINERY_RETURN_IF_ERROR(check_accepted(*this));
  CUBINERY_RETURN_IF_ERROR(split_qkv ? check_split(*this) : check_unsplit(*this));
  if (width < 2 || width > 4) return bad_field(kConvOp, "width", value_text(width), "2, 3, 4");
  CUBINERY_RETURN_IF_ERROR(check_checkpoints(*this));
  CUBINERY_RETURN_IF_ERROR(check_circular(*this));
  if (!from_accepted) return {};
  constexpr std::string_view kNeeded = "true (from_accepted needs it)";
  if (!states.has_initial) return bad_field(kConvOp, "has_initial_state", "false", kNeeded);
  if (!states.store) return bad_field(kConvOp, "store_state", "false", kNeeded);
  if (!states.whole_window || stores_every(*this)) return {};
  return bad_field(kConvOp, "whole_window", "true",
                   "false (with from_accepted the state's shape says how many columns it has, "
                   "unless stored_states = every)");
}

int norm_heads(const ConvProblem& problem) {
  return problem.inputs.use_qk_l2norm ? problem.heads.q + problem.heads.k : 0;
}

ConvProblem normalised(ConvProblem problem) {
  const ConvProblem plain;
  problem = normalised_shared(problem);
  if (!problem.split_qkv) problem.heads = plain.heads;
  if (!problem.split_qkv) problem.value_dim = plain.value_dim;
  const bool has_rows = problem.inputs.use_qk_l2norm || has_channel_gates(problem.inputs);
  if (!has_rows) problem.key_dim = plain.key_dim;
  const bool keeps_none = !problem.states.store && problem.checkpoints == Checkpoints::kNone;
  if (!problem.states.has_initial && keeps_none) {
    problem.states.dtype = plain.states.dtype;
    problem.states.layout = plain.states.layout;
    problem.states.whole_window = plain.states.whole_window;
  }
  return problem;
}

}  // namespace cubinery::gdn
