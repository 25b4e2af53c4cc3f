// The tensors of the operators' arguments, by name.  The structs of C and of C++ name them alike,
// so that one list is of both.
#pragma once

#include <array>

namespace cubinery::capi {

template <class T>
struct NamedTensor {
  const char* name;
  T* tensor;
};
template <class T>
NamedTensor(const char*, T*) -> NamedTensor<T>;

// Of every operator with outputs.  The Python module takes tensors in this order.
constexpr auto shared_tensors(auto& args) {
  return std::array{
      NamedTensor{"q", &args.q},
      NamedTensor{"k", &args.k},
      NamedTensor{"v", &args.v},
      NamedTensor{"g", &args.gates.g},
      NamedTensor{"beta", &args.gates.beta},
      NamedTensor{"A_log", &args.gates.A_log},
      NamedTensor{"dt_bias", &args.gates.dt_bias},
      NamedTensor{"o", &args.o},
      NamedTensor{"state", &args.states.in},
      NamedTensor{"state_out", &args.states.out},
      NamedTensor{"state_indices", &args.states.indices},
      NamedTensor{"state_out_indices", &args.states.out_indices},
  };
}

// Of a decode step, after those.
constexpr auto decode_tensors(auto& args) {
  return std::array{
      NamedTensor{"z", &args.z},
      NamedTensor{"norm_weight", &args.norm_weight},
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
      NamedTensor{"k", &layer.k},
      NamedTensor{"v", &layer.v},
      NamedTensor{"g", &layer.gates.g},
      NamedTensor{"beta", &layer.gates.beta},
      NamedTensor{"A_log", &layer.gates.A_log},
      NamedTensor{"dt_bias", &layer.gates.dt_bias},
      NamedTensor{"state", &layer.state},
      NamedTensor{"state_out", &layer.state_out},
  };
}

// Of a commit, after those of its one layer.
constexpr auto commit_tensors(auto& args) {
  return std::array{
      NamedTensor{"layers", &args.layers},
      NamedTensor{"accepted", &args.accepted},
      NamedTensor{"cu_seqlens", &args.cu_seqlens},
      NamedTensor{"state_indices", &args.indices},
      NamedTensor{"state_out_indices", &args.out_indices},
  };
}

}  // namespace cubinery::capi
