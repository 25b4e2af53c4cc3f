// The names of cubinery/gdn_verify_types.h in field tables (cubinery/fields.h).  Persistent: they
// are part of kernel identities, manifests and tuning results.
#pragma once

#include <array>

#include "cubinery/fields.h"
#include "cubinery/gdn_verify_types.h"

namespace cubinery {

template <>
struct EnumNames<gdn::StoredStates> {
  static constexpr const char* kType = "cubinery::gdn::StoredStates";
  static constexpr std::array<EnumName<gdn::StoredStates>, 2> kNames{
      {{gdn::StoredStates::kLast, "kLast", "last"},
       {gdn::StoredStates::kEvery, "kEvery", "every"}}};
};

}  // namespace cubinery
