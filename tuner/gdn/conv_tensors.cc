#include "tuner/gdn/conv_tensors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/gdn/conv_problem.h"
#include "tuner/gdn/gdn_tensors.h"

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

Tensor states(const ConvProblem& p, const ConvForm& form) {
  const bool pool = p.states.location == gdn::StateLocation::kPool;
  const std::int64_t rows = pool ? form.slots : form.sequences();
  if (p.states.layout == gdn::ConvStateLayout::kColumns) {
    return Tensor::contiguous(nullptr, p.states.dtype, {rows, form.channels, form.columns});
  }
  Tensor tensor = Tensor::contiguous(nullptr, p.states.dtype, {rows, form.columns, form.channels});
  std::swap(tensor.shape[1], tensor.shape[2]);
  std::swap(tensor.strides[1], tensor.strides[2]);
  return tensor;
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
       [](const auto& p, const auto& form) {
         return p.states.has_initial || p.states.store ? states(p, form) : Tensor{};
       },
       any_number},
      {"state_out", ConvTensor::kStateOut, ConvKind::kStates,
       [](auto& a) -> Tensor& { return a.states.out; },
       [](const auto& p, const auto& form) {
         return form.separate_out && p.states.has_initial && p.states.store ? states(p, form)
                                                                            : Tensor{};
       },
       any_number},
      {"state_indices", ConvTensor::kStateIndices, ConvKind::kIndices,
       [](auto& a) -> Tensor& { return a.states.indices; },
       [](const auto& p, const auto& form) {
         return p.states.location == gdn::StateLocation::kPool
                    ? vector_tensor(p.states.index_dtype, form.sequences())
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
  if (form.columns != 0) return form;
  form.columns = state_columns(problem);
  if (!problem.from_accepted || form.lengths.empty()) return form;
  const std::int64_t longest = *std::max_element(form.lengths.begin(), form.lengths.end());
  form.columns = std::max(form.columns, longest + problem.width - 2);
  return form;
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
  const int passes = (problem.states.has_initial ? 1 : 0) + (problem.states.store ? 1 : 0);
  const std::int64_t state = form.channels * form.columns * size_of(problem.states.dtype);
  std::int64_t bytes = passes * form.sequences() * state;
  for (const ConvTensorInfo& info : conv_tensors()) {
    if (info.kind == ConvKind::kStates) continue;
    bytes += static_cast<std::int64_t>(bytes_of(info.form(problem, form)));
  }
  return bytes;
}

}  // namespace cubinery
