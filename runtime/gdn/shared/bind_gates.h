// The gates of tokens: decays and betas.
#pragma once

#include <string_view>

#include "cubinery/gdn_args.h"
#include "cubinery/gdn_parts.h"
#include "runtime/gdn/shared/bind_rows.h"

namespace cubinery::gdn {

template <class Strides>
Status bind_gates(std::string_view op, const Inputs& inputs, const GateArgs& args,
                  const TokenForm& form, const Dim& heads, GateParams<Strides>* params);

}  // namespace cubinery::gdn
