#include "tuner/gdn/gdn_tensors.h"

#include <cstdlib>
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
  const bool kv = p.states.layout == gdn::StateLayout::kKV;
  return Tensor::contiguous(
      nullptr, p.states.dtype,
      {rows, p.heads.count(), kv ? p.key_dim : p.value_dim, kv ? p.value_dim : p.key_dim});
}

}  // namespace

PrefillProblem as_prefill(const gdn::DecodeProblem& problem) {
  return {.heads = problem.heads,
          .key_dim = problem.key_dim,
          .value_dim = problem.value_dim,
          .dtype = problem.dtype,
          .output_dtype = problem.output_dtype,
          .inputs = problem.inputs,
          .states = problem.states,
          .varlen = true};
}

gdn::DecodeArgs as_decode(const PrefillArgs& args) {
  gdn::DecodeArgs step{.q = args.q,
                       .k = args.k,
                       .v = args.v,
                       .gates = args.gates,
                       .o = args.o,
                       .states = args.states,
                       .scale = args.scale,
                       .programmatic = args.programmatic};
  if (args.q.rank != 4) return step;
  for (Tensor* rows : {&step.q, &step.k, &step.v, &step.gates.g, &step.gates.beta, &step.o}) {
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
  args.q = token_tensor(p, extent, p.dtype, p.heads.q, p.key_dim);
  args.k = token_tensor(p, extent, p.dtype, p.heads.k, p.key_dim);
  args.v = token_tensor(p, extent, p.dtype, p.heads.v, p.value_dim);
  args.o = token_tensor(p, extent, p.output_dtype, p.heads.count(), p.value_dim);
  if (p.inputs.gate_mode != GateMode::kNone) {
    args.gates.g = token_tensor(p, extent, p.inputs.gate_dtype, p.heads.count(), 0);
  }
  if (p.inputs.beta_mode != BetaMode::kOne) {
    args.gates.beta = token_tensor(p, extent, p.inputs.beta_dtype, p.heads.count(), 0);
  }
  if (p.inputs.gate_mode == GateMode::kComputed) {
    args.gates.A_log = Tensor::contiguous(nullptr, p.inputs.a_log_dtype, {p.heads.count()});
    args.gates.dt_bias = Tensor::contiguous(nullptr, p.inputs.dt_bias_dtype, {p.heads.count()});
  }
  const std::int64_t sequences = extent.sequences();
  const bool pool = p.states.location == StateLocation::kPool;
  const std::int64_t rows = pool ? extent.slots : sequences;
  if (p.states.has_initial || p.states.store) args.states.in = matrices(p, rows);
  if (extent.separate_out) args.states.out = matrices(p, rows);
  if (pool) args.states.indices = Tensor::contiguous(nullptr, p.states.index_dtype, {sequences});
  if (pool && extent.write_indices) args.states.out_indices = args.states.indices;
  if (p.varlen) {
    args.cu_seqlens = Tensor::contiguous(nullptr, p.cu_seqlens_dtype, {sequences + 1});
  }
  if (p.checkpoints == Checkpoints::kNone) return args;
  args.checkpoints = matrices(p, extent.checkpoints);
  if (p.varlen) args.checkpoint_cu_starts = args.cu_seqlens;
  return args;
}

const Tensor& tensor_of(const PrefillArgs& args, GdnTensor tensor) {
  switch (tensor) {
    case GdnTensor::kQ:
      return args.q;
    case GdnTensor::kK:
      return args.k;
    case GdnTensor::kV:
      return args.v;
    case GdnTensor::kG:
      return args.gates.g;
    case GdnTensor::kBeta:
      return args.gates.beta;
    case GdnTensor::kALog:
      return args.gates.A_log;
    case GdnTensor::kDtBias:
      return args.gates.dt_bias;
    case GdnTensor::kO:
      return args.o;
    case GdnTensor::kCuSeqlens:
      return args.cu_seqlens;
    case GdnTensor::kState:
      return args.states.in;
    case GdnTensor::kStateOut:
      return args.states.out;
    case GdnTensor::kStateIndices:
      return args.states.indices;
    case GdnTensor::kStateOutIndices:
      return args.states.out_indices;
    case GdnTensor::kCheckpoints:
      return args.checkpoints;
    case GdnTensor::kCheckpointCuStarts:
      return args.checkpoint_cu_starts;
  }
  std::abort();
}

Tensor& tensor_of(PrefillArgs& args, GdnTensor tensor) {
  return const_cast<Tensor&>(tensor_of(std::as_const(args), tensor));
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
  const int passes = (problem.states.has_initial ? 1 : 0) + (problem.states.store ? 1 : 0);
  const std::size_t states = idx(passes) * bytes_of(matrices(problem, extent.sequences()));
  return static_cast<std::int64_t>(bytes_of(args.q) + bytes_of(args.k) + bytes_of(args.v) +
                                   bytes_of(args.gates.g) + bytes_of(args.gates.beta) +
                                   bytes_of(args.o) + bytes_of(args.states.indices) +
                                   bytes_of(args.checkpoints) + states);
}

}  // namespace cubinery
