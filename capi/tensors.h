// The tensors of the operators' arguments, by name.  The structs of C and of C++ name them alike,
// so that one list is of both.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace cubinery::capi {

template <class T>
struct NamedTensor {
  const char* name;
  T* tensor;
};
template <class T>
NamedTensor(const char*, T*) -> NamedTensor<T>;

template <class T, std::size_t kFirst, std::size_t kRest>
constexpr auto joined(const std::array<NamedTensor<T>, kFirst>& first,
                      const std::array<NamedTensor<T>, kRest>& rest) {
  std::array<NamedTensor<T>, kFirst + kRest> all{};
  std::copy(rest.begin(), rest.end(), std::copy(first.begin(), first.end(), all.begin()));
  return all;
}

constexpr auto state_tensors(auto& args) {
  return std::array{
      NamedTensor{"state", &args.state},
      NamedTensor{"state_out", &args.state_out},
      NamedTensor{"state_indices", &args.state_indices},
      NamedTensor{"state_out_indices", &args.state_out_indices},
  };
}

// Of every operator with an o.  The Python module takes tensors in this order.
constexpr auto shared_tensors(auto& args) {
  const std::array own{
      NamedTensor{"q", &args.q},
      NamedTensor{"k", &args.k},
      NamedTensor{"v", &args.v},
      NamedTensor{"g", &args.g},
      NamedTensor{"beta", &args.beta},
      NamedTensor{"A_log", &args.A_log},
      NamedTensor{"dt_bias", &args.dt_bias},
      NamedTensor{"o", &args.o},
  };
  return joined(own, state_tensors(args));
}

// Of a decode step, after those.
constexpr auto decode_tensors(auto& args) {
  return std::array{
      NamedTensor{"z", &args.z},
      NamedTensor{"norm_weight", &args.norm_weight},
      NamedTensor{"x", &args.x},
      NamedTensor{"conv_weight", &args.conv_weight},
      NamedTensor{"conv_bias", &args.conv_bias},
      NamedTensor{"conv_state", &args.conv_state},
      NamedTensor{"conv_state_out", &args.conv_state_out},
  };
}

// Of a prefill, after the shared ones.
constexpr auto prefill_tensors(auto& args) {
  return std::array{
      NamedTensor{"cu_seqlens", &args.cu_seqlens},
      NamedTensor{"checkpoints", &args.checkpoints},
      NamedTensor{"checkpoint_cu_starts", &args.checkpoint_cu_starts},
  };
}

// Of a verification, after the shared ones.
constexpr auto verify_tensors(auto& args) {
  return std::array{
      NamedTensor{"cu_seqlens", &args.cu_seqlens},
      NamedTensor{"accepted", &args.accepted},
      NamedTensor{"parents", &args.parents},
  };
}

// Of a layer of a commit.
constexpr auto layer_tensors(auto& layer) {
  return std::array{
      NamedTensor{"k", &layer.k},         NamedTensor{"v", &layer.v},
      NamedTensor{"g", &layer.g},         NamedTensor{"beta", &layer.beta},
      NamedTensor{"A_log", &layer.A_log}, NamedTensor{"dt_bias", &layer.dt_bias},
      NamedTensor{"state", &layer.state}, NamedTensor{"state_out", &layer.state_out},
  };
}

// Of a commit, after those of its one layer.
constexpr auto commit_tensors(auto& args) {
  return std::array{
      NamedTensor{"layers", &args.layers},
      NamedTensor{"accepted", &args.accepted},
      NamedTensor{"cu_seqlens", &args.cu_seqlens},
      NamedTensor{"state_indices", &args.state_indices},
      NamedTensor{"state_out_indices", &args.state_out_indices},
  };
}

// Of a convolution.  The Python module takes tensors in this order.
constexpr auto conv_tensors(auto& args) {
  const std::array own{
      NamedTensor{"x", &args.x},
      NamedTensor{"weight", &args.weight},
      NamedTensor{"bias", &args.bias},
      NamedTensor{"y", &args.y},
      NamedTensor{"q", &args.q},
      NamedTensor{"k", &args.k},
      NamedTensor{"v", &args.v},
      NamedTensor{"a", &args.a},
      NamedTensor{"b", &args.b},
      NamedTensor{"A_log", &args.A_log},
      NamedTensor{"dt_bias", &args.dt_bias},
      NamedTensor{"g", &args.g},
      NamedTensor{"beta", &args.beta},
      NamedTensor{"cu_seqlens", &args.cu_seqlens},
      NamedTensor{"has_initial_state", &args.has_initial_state},
      NamedTensor{"accepted", &args.accepted},
      NamedTensor{"checkpoints", &args.checkpoints},
      NamedTensor{"checkpoint_cu_starts", &args.checkpoint_cu_starts},
  };
  return joined(own, state_tensors(args));
}

}  // namespace cubinery::capi
