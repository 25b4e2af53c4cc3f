// The names of cubinery/gdn_decode_types.h in field tables (cubinery/fields.h).  Persistent: they
// are part of kernel identities, manifests and tuning results.
#pragma once

#include <array>

#include "cubinery/fields.h"
#include "cubinery/gdn_decode_types.h"

namespace cubinery {

template <>
struct EnumNames<gdn::OutputNorm> {
  static constexpr const char* kType = "cubinery::gdn::OutputNorm";
  static constexpr std::array<EnumName<gdn::OutputNorm>, 3> kNames{
      {{gdn::OutputNorm::kNone, "kNone", "none"},
       {gdn::OutputNorm::kGatedRms, "kGatedRms", "gated_rms"},
       {gdn::OutputNorm::kSigmoidGatedRms, "kSigmoidGatedRms", "sigmoid_gated_rms"}}};
};

}  // namespace cubinery
