#include "tuner/gdn/gdn_tensors.h"

#include <functional>
#include <numeric>
#include <utility>

namespace cubinery {
namespace {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::GateMode;
using gdn::PrefillArgs;
using gdn::PrefillProblem;
using gdn::StateLocation;

// A tensor of tokens; without dim for dim = 0.
Tensor token_tensor(const PrefillProblem& p, const GdnExtent& extent, DType dtype, int heads,
                    int dim) {
  const bool heads_first = p.token_layout == gdn::TokenLayout::kBHTD;
  const std::int64_t tokens = p.varlen                 ? extent.tokens() + extent.spare_tokens
                              : extent.lengths.empty() ? 0
                                                       : extent.lengths.front();
  std::vector<std::int64_t> shape;
  if (!p.varlen) shape.push_back(extent.sequences());
  shape.push_back(heads_first ? heads : tokens);
  shape.push_back(heads_first ? tokens : heads);
  if (dim != 0) shape.push_back(dim);
  Tensor tensor{.dtype = dtype, .rank = static_cast<int>(shape.size())};
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    tensor.shape[d] = shape[d];
    tensor.strides[d] = stride;
    stride *= shape[d];
  }
  return tensor;
}

Tensor matrices(const PrefillProblem& p, std::int64_t rows) {
  const bool kv = p.state_layout == gdn::StateLayout::kKV;
  return Tensor::contiguous(
      nullptr, p.state_dtype,
      {rows, p.heads(), kv ? p.key_dim : p.value_dim, kv ? p.value_dim : p.key_dim});
}

}  // namespace

PrefillProblem as_prefill(const gdn::DecodeProblem& problem) {
  return {.q_heads = problem.q_heads,
          .k_heads = problem.k_heads,
          .v_heads = problem.v_heads,
          .key_dim = problem.key_dim,
          .value_dim = problem.value_dim,
          .dtype = problem.dtype,
          .output_dtype = problem.output_dtype,
          .gate_dtype = problem.gate_dtype,
          .beta_dtype = problem.beta_dtype,
          .a_log_dtype = problem.a_log_dtype,
          .dt_bias_dtype = problem.dt_bias_dtype,
          .state_dtype = problem.state_dtype,
          .index_dtype = problem.index_dtype,
          .varlen = true,
          .state_layout = problem.state_layout,
          .state_location = problem.state_location,
          .padding = problem.padding,
          .pad_index = problem.pad_index,
          .gate_mode = problem.gate_mode,
          .beta_mode = problem.beta_mode,
          .use_qk_l2norm = problem.use_qk_l2norm,
          .has_initial_state = problem.has_initial_state,
          .store_state = problem.store_state};
}

gdn::DecodeArgs as_decode(const PrefillArgs& args) {
  gdn::DecodeArgs step{.q = args.q,
                       .k = args.k,
                       .v = args.v,
                       .g = args.g,
                       .beta = args.beta,
                       .A_log = args.A_log,
                       .dt_bias = args.dt_bias,
                       .o = args.o,
                       .state = args.state,
                       .state_out = args.state_out,
                       .state_indices = args.state_indices,
                       .state_out_indices = args.state_out_indices,
                       .scratch_slot = args.scratch_slot,
                       .scale = args.scale,
                       .programmatic = args.programmatic};
  if (args.q.rank != 4) return step;
  for (Tensor* rows : {&step.q, &step.k, &step.v, &step.g, &step.beta, &step.o}) {
    std::swap(rows->shape[0], rows->shape[1]);
    rows->strides[0] = rows->strides[1];
  }
  return step;
}

std::int64_t GdnExtent::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

PrefillArgs tensors_of(const PrefillProblem& p, const GdnExtent& extent) {
  PrefillArgs args;
  args.q = token_tensor(p, extent, p.dtype, p.q_heads, p.key_dim);
  args.k = token_tensor(p, extent, p.dtype, p.k_heads, p.key_dim);
  args.v = token_tensor(p, extent, p.dtype, p.v_heads, p.value_dim);
  args.o = token_tensor(p, extent, p.output_dtype, p.heads(), p.value_dim);
  if (p.gate_mode != GateMode::kNone) {
    args.g = token_tensor(p, extent, p.gate_dtype, p.heads(), 0);
  }
  if (p.beta_mode != BetaMode::kOne) {
    args.beta = token_tensor(p, extent, p.beta_dtype, p.heads(), 0);
  }
  if (p.gate_mode == GateMode::kComputed) {
    args.A_log = Tensor::contiguous(nullptr, p.a_log_dtype, {p.heads()});
    args.dt_bias = Tensor::contiguous(nullptr, p.dt_bias_dtype, {p.heads()});
  }
  const std::int64_t sequences = extent.sequences();
  const bool pool = p.state_location == StateLocation::kPool;
  const std::int64_t rows = pool ? extent.slots : sequences;
  if (p.has_initial_state || p.store_state) args.state = matrices(p, rows);
  if (extent.separate_out) args.state_out = matrices(p, rows);
  if (pool) args.state_indices = Tensor::contiguous(nullptr, p.index_dtype, {sequences});
  if (pool && extent.write_indices) args.state_out_indices = args.state_indices;
  if (p.varlen) {
    args.cu_seqlens = Tensor::contiguous(nullptr, p.cu_seqlens_dtype, {sequences + 1});
  }
  if (p.checkpoints == Checkpoints::kNone) return args;
  args.checkpoints = matrices(p, extent.checkpoints);
  if (p.varlen) args.checkpoint_cu_starts = args.cu_seqlens;
  return args;
}

std::int64_t elements_of(const Tensor& tensor) {
  if (tensor.rank == 0) return 0;
  return std::accumulate(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, std::int64_t{1},
                         std::multiplies<>());
}

std::size_t bytes_of(const Tensor& tensor) {
  return idx(elements_of(tensor)) * idx(size_of(tensor.dtype));
}

std::int64_t checkpoints_of(const PrefillProblem& problem, std::int64_t tokens) {
  const std::int64_t every = problem.checkpoint_every;
  switch (problem.checkpoints) {
    case Checkpoints::kNone:
      return 0;
    case Checkpoints::kBefore:
      return (tokens + every - 1) / every;
    case Checkpoints::kAfter:
      return tokens / every;
  }
  return 0;
}

std::int64_t least_bytes(const PrefillProblem& problem, const GdnExtent& extent) {
  const PrefillArgs args = tensors_of(problem, extent);
  const int passes = (problem.has_initial_state ? 1 : 0) + (problem.store_state ? 1 : 0);
  const std::size_t states = idx(passes) * bytes_of(matrices(problem, extent.sequences()));
  return static_cast<std::int64_t>(bytes_of(args.q) + bytes_of(args.k) + bytes_of(args.v) +
                                   bytes_of(args.g) + bytes_of(args.beta) + bytes_of(args.o) +
                                   bytes_of(args.state_indices) + bytes_of(args.checkpoints) +
                                   states);
}

}  // namespace cubinery
