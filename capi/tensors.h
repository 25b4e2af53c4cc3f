// The tensors of the operators' arguments, by name.  The structs of C and of C++ name them alike,
// so that one list is of both.
#pragma once

#include <array>

namespace cubinery::capi {

template <class Args, class T>
struct TensorMember {
  const char* name;
  T Args::*member;
};
template <class Args, class T>
TensorMember(const char*, T Args::*) -> TensorMember<Args, T>;

// Of every operator.  The Python module takes tensors in this order.
template <class Args>
inline constexpr std::array kTensors{
    TensorMember{"q", &Args::q},
    TensorMember{"k", &Args::k},
    TensorMember{"v", &Args::v},
    TensorMember{"g", &Args::g},
    TensorMember{"beta", &Args::beta},
    TensorMember{"A_log", &Args::A_log},
    TensorMember{"dt_bias", &Args::dt_bias},
    TensorMember{"o", &Args::o},
    TensorMember{"state", &Args::state},
    TensorMember{"state_out", &Args::state_out},
    TensorMember{"state_indices", &Args::state_indices},
    TensorMember{"state_out_indices", &Args::state_out_indices},
};

// Of a prefill, after those.
template <class Args>
inline constexpr std::array kPrefillTensors{
    TensorMember{"cu_seqlens", &Args::cu_seqlens},
    TensorMember{"checkpoints", &Args::checkpoints},
    TensorMember{"checkpoint_cu_starts", &Args::checkpoint_cu_starts},
};

}  // namespace cubinery::capi
