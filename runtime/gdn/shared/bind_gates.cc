#include "runtime/gdn/shared/bind_gates.h"

namespace cubinery::gdn {
namespace {

// The part of a problem that says which gates there are.
struct GateProblem {
  const Inputs& inputs;
};

}  // namespace

template <class Strides>
Status bind_gates(std::string_view op, const Inputs& inputs, const GateTensors& args,
                  const TokenForm& form, const Dim& heads, GateParams<Strides>* params) {
  const GateProblem of{inputs};
  CUBINERY_RETURN_IF_ERROR(bind_scalars(op, tensors::kG, of, args.g, form, heads, &params->g));
  CUBINERY_RETURN_IF_ERROR(
      bind_scalars(op, tensors::kBeta, of, args.beta, form, heads, &params->beta));
  CUBINERY_RETURN_IF_ERROR(bind_vector(op, tensors::kALog, of, args.A_log, heads, &params->A_log));
  return bind_vector(op, tensors::kDtBias, of, args.dt_bias, heads, &params->dt_bias);
}
template Status bind_gates(std::string_view, const Inputs&, const GateTensors&, const TokenForm&,
                           const Dim&, GateParams<TokenStrides>*);
template Status bind_gates(std::string_view, const Inputs&, const GateTensors&, const TokenForm&,
                           const Dim&, GateParams<RequestStrides>*);

}  // namespace cubinery::gdn
