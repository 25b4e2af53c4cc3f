// The gates of tokens: decays and betas.
#pragma once

#include <string_view>

#include "cubinery/gdn_parts.h"
#include "runtime/gdn/shared/bind_rows.h"

namespace cubinery::gdn {

// The tensors of an operator's arguments that are gates.
struct GateTensors {
  const Tensor &g, &beta, &A_log, &dt_bias;
};
template <class Args>
GateTensors gates_of(const Args& args) {
  return {args.g, args.beta, args.A_log, args.dt_bias};
}

template <class Strides>
Status bind_gates(std::string_view op, const Inputs& inputs, const GateTensors& args,
                  const TokenForm& form, const Dim& heads, GateParams<Strides>* params);

}  // namespace cubinery::gdn
