// The names of cubinery/gdn_conv_types.h in field tables (cubinery/fields.h).  Persistent: they are
// part of kernel identities, manifests and tuning results.
#pragma once

#include <array>

#include "cubinery/fields.h"
#include "cubinery/gdn_conv_types.h"

namespace cubinery {

template <>
struct EnumNames<gdn::Activation> {
  static constexpr const char* kType = "cubinery::gdn::Activation";
  static constexpr std::array<EnumName<gdn::Activation>, 2> kNames{
      {{gdn::Activation::kNone, "kNone", "none"}, {gdn::Activation::kSilu, "kSilu", "silu"}}};
};

template <>
struct EnumNames<gdn::ConvStateLayout> {
  static constexpr const char* kType = "cubinery::gdn::ConvStateLayout";
  static constexpr std::array<EnumName<gdn::ConvStateLayout>, 2> kNames{
      {{gdn::ConvStateLayout::kColumns, "kColumns", "columns"},
       {gdn::ConvStateLayout::kChannels, "kChannels", "channels"}}};
};

}  // namespace cubinery
