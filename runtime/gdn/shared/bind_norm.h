// Binds the norm behind an operator's outputs: its gate, its weight and its epsilon.
#pragma once

#include <optional>
#include <string_view>

#include "common/output_norm.h"
#include "runtime/gdn/shared/binder.h"

namespace cubinery::gdn {

// `why`: why there is no norm; empty where there is one.
Status bind_norm_eps(std::string_view op, std::optional<float> given, std::string_view why,
                     float* eps);

template <class Args, class Strides>
Status bind_norm(const Binder<Args>& bind, NormParams<Strides>* params) {
  CUBINERY_RETURN_IF_ERROR(bind.template rows<TensorId::kZ>(&params->z));
  CUBINERY_RETURN_IF_ERROR(bind.template vector<TensorId::kNormWeight>(&params->weight));
  return bind_norm_eps(Binder<Args>::kOp, bind.args().norm_eps,
                       tensors::kZ.why_absent(bind.problem()), &params->eps);
}

}  // namespace cubinery::gdn
