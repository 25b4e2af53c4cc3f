#include "harness/conv_tensors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/gdn_tensors.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery {
namespace {

using gdn::ConvArgs;
using gdn::ConvProblem;

// Of tokens: `rest` numbers each, or rows of them.
Tensor of_tokens(const ConvProblem& p, const ConvForm& form, DType dtype, std::int64_t rows,
                 std::int64_t columns = 0) {
  const std::int64_t total = form.tokens() + form.spare_tokens;
  const std::int64_t each = form.lengths.empty() ? 0 : form.lengths.front();
  if (p.varlen && columns == 0) return Tensor::contiguous(nullptr, dtype, {total, rows});
  if (p.varlen) return Tensor::contiguous(nullptr, dtype, {total, rows, columns});
  if (columns == 0) return Tensor::contiguous(nullptr, dtype, {form.sequences(), each, rows});
  return Tensor::contiguous(nullptr, dtype, {form.sequences(), each, rows, columns});
}

Tensor of_heads(const ConvProblem& p, const ConvForm& form, DType dtype) {
  return of_tokens(p, form, dtype, p.heads.count());
}

bool in_pool(const ConvProblem& p) { return p.states.location == gdn::StateLocation::kPool; }

// `steps`: 0: there is no dimension of them.
Tensor states_of(const ConvProblem& p, const ConvForm& form, std::int64_t rows,
                 std::int64_t steps = 0) {
  const bool is_turned = p.states.layout == gdn::ConvStateLayout::kChannels;
  const std::int64_t outer = is_turned ? form.columns : form.channels;
  const std::int64_t inner = is_turned ? form.channels : form.columns;
  Tensor tensor = steps > 0
                      ? Tensor::contiguous(nullptr, p.states.dtype, {rows, steps, outer, inner})
                      : Tensor::contiguous(nullptr, p.states.dtype, {rows, outer, inner});
  if (!is_turned) return tensor;
  const auto last = static_cast<std::size_t>(tensor.rank) - 1;
  std::swap(tensor.shape[last - 1], tensor.shape[last]);
  std::swap(tensor.strides[last - 1], tensor.strides[last]);
  return tensor;
}

// Steps that are read, besides the one state that everybody has.
std::int64_t read_steps(const ConvProblem& p, const ConvForm& form) {
  return stores_every(p) && p.from_accepted ? form.steps : 0;
}

Tensor states(const ConvProblem& p, const ConvForm& form) {
  const bool is_written = p.states.store && !(stores_every(p) && !in_pool(p));
  if (!p.states.has_initial && !is_written) return {};
  if (in_pool(p)) return states_of(p, form, form.slots);
  return states_of(p, form, form.sequences(), read_steps(p, form));
}

Tensor states_out(const ConvProblem& p, const ConvForm& form) {
  if (stores_every(p) && !in_pool(p)) {
    if (steps_in_place(p, form)) return {};
    return states_of(p, form, form.sequences(), form.steps);
  }
  if (!form.separate_out || !p.states.has_initial || !p.states.store) return {};
  return states_of(p, form, in_pool(p) ? form.slots : form.sequences());
}

Tensor indices(const ConvProblem& p, const ConvForm& form, std::int64_t steps) {
  if (steps == 0) return vector_tensor(p.states.index_dtype, form.sequences());
  return Tensor::contiguous(nullptr, p.states.index_dtype, {form.sequences(), steps});
}

float any_number(Random& random) { return random.normal(); }
// So that a sum over the taps is about 1.
float tap(Random& random) { return 0.5f * random.normal(); }
float a_log(Random& random) { return static_cast<float>(std::log(random.uniform(1, 16))); }
// As of a freshly initialised model.
float dt_bias(Random& random) {
  const double dt = std::exp(random.uniform(std::log(1e-3), std::log(0.1)));
  return static_cast<float>(std::log(std::expm1(dt)));
}

std::vector<ConvTensorInfo> all_tensors() {
  return {
      {"x", ConvTensor::kX, ConvKind::kInputs, [](auto& a) -> Tensor& { return a.x; },
       [](const auto& p, const auto& form) { return of_tokens(p, form, p.dtype, form.channels); },
       any_number},
      {"weight", ConvTensor::kWeight, ConvKind::kWeights,
       [](auto& a) -> Tensor& { return a.weight; },
       [](const auto& p, const auto& form) {
         return Tensor::contiguous(nullptr, p.weight_dtype, {form.channels, p.width});
       },
       tap},
      {"bias", ConvTensor::kBias, ConvKind::kWeights, [](auto& a) -> Tensor& { return a.bias; },
       [](const auto& p, const auto& form) {
         return p.has_bias ? vector_tensor(p.weight_dtype, form.channels) : Tensor{};
       },
       tap},
      {"y", ConvTensor::kY, ConvKind::kOutputs, [](auto& a) -> Tensor& { return a.y; },
       [](const auto& p, const auto& form) {
         return p.split_qkv ? Tensor{} : of_tokens(p, form, p.dtype, form.channels);
       }},
      {"q", ConvTensor::kQ, ConvKind::kOutputs, [](auto& a) -> Tensor& { return a.q; },
       [](const auto& p, const auto& form) {
         return p.split_qkv ? of_tokens(p, form, p.dtype, p.heads.q, p.key_dim) : Tensor{};
       }},
      {"k", ConvTensor::kK, ConvKind::kOutputs, [](auto& a) -> Tensor& { return a.k; },
       [](const auto& p, const auto& form) {
         return p.split_qkv ? of_tokens(p, form, p.dtype, p.heads.k, p.key_dim) : Tensor{};
       }},
      {"v", ConvTensor::kV, ConvKind::kOutputs, [](auto& a) -> Tensor& { return a.v; },
       [](const auto& p, const auto& form) {
         return p.split_qkv ? of_tokens(p, form, p.dtype, p.heads.v, p.value_dim) : Tensor{};
       }},
      {"a", ConvTensor::kA, ConvKind::kInputs, [](auto& a) -> Tensor& { return a.a; },
       [](const auto& p, const auto& form) {
         return writes_g(p) ? of_heads(p, form, p.inputs.gate_dtype) : Tensor{};
       },
       any_number},
      {"b", ConvTensor::kB, ConvKind::kInputs, [](auto& a) -> Tensor& { return a.b; },
       [](const auto& p, const auto& form) {
         return writes_beta(p) ? of_heads(p, form, p.inputs.beta_dtype) : Tensor{};
       },
       any_number},
      {"A_log", ConvTensor::kALog, ConvKind::kWeights, [](auto& a) -> Tensor& { return a.A_log; },
       [](const auto& p, const auto&) {
         return writes_g(p) ? vector_tensor(p.inputs.a_log_dtype, p.heads.count()) : Tensor{};
       },
       a_log},
      {"dt_bias", ConvTensor::kDtBias, ConvKind::kWeights,
       [](auto& a) -> Tensor& { return a.dt_bias; },
       [](const auto& p, const auto&) {
         return writes_g(p) ? vector_tensor(p.inputs.dt_bias_dtype, p.heads.count()) : Tensor{};
       },
       dt_bias},
      {"g", ConvTensor::kG, ConvKind::kOutputs, [](auto& a) -> Tensor& { return a.g; },
       [](const auto& p, const auto& form) {
         return writes_g(p) ? of_heads(p, form, DType::kF32) : Tensor{};
       }},
      {"beta", ConvTensor::kBeta, ConvKind::kOutputs, [](auto& a) -> Tensor& { return a.beta; },
       [](const auto& p, const auto& form) {
         return writes_beta(p) ? of_heads(p, form, DType::kF32) : Tensor{};
       }},
      {"cu_seqlens", ConvTensor::kCuSeqlens, ConvKind::kBounds,
       [](auto& a) -> Tensor& { return a.cu_seqlens; },
       [](const auto& p, const auto& form) {
         return p.varlen ? vector_tensor(p.cu_seqlens_dtype, form.sequences() + 1) : Tensor{};
       }},
      {"has_initial_state", ConvTensor::kHasInitial, ConvKind::kFlags,
       [](auto& a) -> Tensor& { return a.has_initial_state; },
       [](const auto& p, const auto& form) {
         return form.has_flags && p.states.has_initial
                    ? vector_tensor(DType::kBool, form.sequences())
                    : Tensor{};
       }},
      {"accepted", ConvTensor::kAccepted, ConvKind::kCounts,
       [](auto& a) -> Tensor& { return a.accepted; },
       [](const auto& p, const auto& form) {
         return p.from_accepted ? vector_tensor(p.accepted_dtype, form.sequences()) : Tensor{};
       }},
      {"state", ConvTensor::kState, ConvKind::kStates,
       [](auto& a) -> Tensor& { return a.states.in; },
       [](const auto& p, const auto& form) { return states(p, form); }, any_number},
      {"state_out", ConvTensor::kStateOut, ConvKind::kStates,
       [](auto& a) -> Tensor& { return a.states.out; },
       [](const auto& p, const auto& form) { return states_out(p, form); }, any_number},
      {"state_indices", ConvTensor::kStateIndices, ConvKind::kIndices,
       [](auto& a) -> Tensor& { return a.states.indices; },
       [](const auto& p, const auto& form) {
         return in_pool(p) ? indices(p, form, read_steps(p, form)) : Tensor{};
       }},
      {"state_out_indices", ConvTensor::kStateOutIndices, ConvKind::kIndices,
       [](auto& a) -> Tensor& { return a.states.out_indices; },
       [](const auto& p, const auto& form) {
         return in_pool(p) && stores_every(p) && !steps_in_place(p, form)
                    ? indices(p, form, form.steps)
                    : Tensor{};
       }},
      {"checkpoints", ConvTensor::kCheckpoints, ConvKind::kCheckpoints,
       [](auto& a) -> Tensor& { return a.checkpoints; },
       [](const auto& p, const auto& form) {
         return p.checkpoints == gdn::Checkpoints::kNone ? Tensor{}
                                                         : states_of(p, form, form.checkpoints);
       }},
      {"checkpoint_cu_starts", ConvTensor::kCheckpointStarts, ConvKind::kBounds,
       [](auto& a) -> Tensor& { return a.checkpoint_cu_starts; },
       [](const auto& p, const auto& form) {
         return p.varlen && p.checkpoints != gdn::Checkpoints::kNone
                    ? vector_tensor(p.cu_seqlens_dtype, form.sequences() + 1)
                    : Tensor{};
       }},
  };
}

}  // namespace

std::int64_t ConvForm::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

ConvForm conv_form(const ConvProblem& problem, ConvForm form) {
  if (problem.split_qkv) form.channels = split_channels(problem);
  std::int64_t longest = 1;
  for (const std::int64_t length : form.lengths) longest = std::max(longest, length);
  if (stores_every(problem) && form.steps == 0) form.steps = longest;
  if (form.checkpoints == 0) {
    for (const std::int64_t length : form.lengths) {
      form.checkpoints += gdn::checkpoints_of(problem, length);
    }
  }
  if (form.columns != 0) return form;
  form.columns = state_columns(problem);
  if (!has_long_window(problem)) return form;
  form.columns = std::max(form.columns, longest + problem.width - 2);
  return form;
}

bool steps_in_place(const ConvProblem& problem, const ConvForm& form) {
  return problem.from_accepted && !form.separate_out;
}

const std::vector<ConvTensorInfo>& conv_tensors() {
  static const std::vector<ConvTensorInfo> kAll = all_tensors();
  return kAll;
}

ConvArgs tensors_of(const ConvProblem& problem, const ConvForm& form) {
  ConvArgs args;
  for (const ConvTensorInfo& info : conv_tensors()) info.in(args) = info.form(problem, form);
  return args;
}

std::int64_t least_bytes(const ConvProblem& problem, const ConvForm& form) {
  const std::int64_t stored = stores_every(problem)  ? form.tokens()
                              : problem.states.store ? form.sequences()
                                                     : 0;
  const std::int64_t read = problem.states.has_initial ? form.sequences() : 0;
  const std::int64_t state = form.channels * form.columns * size_of(problem.states.dtype);
  std::int64_t bytes = (read + stored) * state;
  for (const ConvTensorInfo& info : conv_tensors()) {
    if (info.kind == ConvKind::kStates) continue;
    bytes += static_cast<std::int64_t>(bytes_of(info.form(problem, form)));
  }
  return bytes;
}

}  // namespace cubinery
