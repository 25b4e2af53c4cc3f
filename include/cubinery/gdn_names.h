// The names of Gated DeltaNet's choices in field tables (cubinery/fields.h).  Persistent: they are
// part of kernel identities, manifests and tuning results.
#pragma once

#include <array>

#include "cubinery/fields.h"
#include "cubinery/gdn_types.h"

namespace cubinery {

template <>
struct EnumNames<gdn::StateLayout> {
  static constexpr const char* kType = "cubinery::gdn::StateLayout";
  static constexpr std::array<EnumName<gdn::StateLayout>, 2> kNames{
      {{gdn::StateLayout::kKV, "kKV", "kv"}, {gdn::StateLayout::kVK, "kVK", "vk"}}};
};

template <>
struct EnumNames<gdn::StateLocation> {
  static constexpr const char* kType = "cubinery::gdn::StateLocation";
  static constexpr std::array<EnumName<gdn::StateLocation>, 2> kNames{
      {{gdn::StateLocation::kDense, "kDense", "dense"},
       {gdn::StateLocation::kPool, "kPool", "pool"}}};
};

template <>
struct EnumNames<gdn::TokenLayout> {
  static constexpr const char* kType = "cubinery::gdn::TokenLayout";
  static constexpr std::array<EnumName<gdn::TokenLayout>, 2> kNames{
      {{gdn::TokenLayout::kBTHD, "kBTHD", "bthd"}, {gdn::TokenLayout::kBHTD, "kBHTD", "bhtd"}}};
};

template <>
struct EnumNames<gdn::Checkpoints> {
  static constexpr const char* kType = "cubinery::gdn::Checkpoints";
  static constexpr std::array<EnumName<gdn::Checkpoints>, 4> kNames{
      {{gdn::Checkpoints::kNone, "kNone", "none"},
       {gdn::Checkpoints::kBefore, "kBefore", "before"},
       {gdn::Checkpoints::kAfter, "kAfter", "after"},
       {gdn::Checkpoints::kAt, "kAt", "at"}}};
};

template <>
struct EnumNames<gdn::Decay> {
  static constexpr const char* kType = "cubinery::gdn::Decay";
  static constexpr std::array<EnumName<gdn::Decay>, 2> kNames{
      {{gdn::Decay::kHead, "kHead", "head"}, {gdn::Decay::kChannel, "kChannel", "channel"}}};
};

template <>
struct EnumNames<gdn::GateMode> {
  static constexpr const char* kType = "cubinery::gdn::GateMode";
  static constexpr std::array<EnumName<gdn::GateMode>, 5> kNames{
      {{gdn::GateMode::kNone, "kNone", "none"},
       {gdn::GateMode::kLog, "kLog", "log"},
       {gdn::GateMode::kAlpha, "kAlpha", "alpha"},
       {gdn::GateMode::kComputed, "kComputed", "computed"},
       {gdn::GateMode::kLowerBound, "kLowerBound", "lower_bound"}}};
};

template <>
struct EnumNames<gdn::BetaMode> {
  static constexpr const char* kType = "cubinery::gdn::BetaMode";
  static constexpr std::array<EnumName<gdn::BetaMode>, 4> kNames{
      {{gdn::BetaMode::kOne, "kOne", "one"},
       {gdn::BetaMode::kGiven, "kGiven", "given"},
       {gdn::BetaMode::kLogit, "kLogit", "logit"},
       {gdn::BetaMode::kDoubledLogit, "kDoubledLogit", "doubled_logit"}}};
};

}  // namespace cubinery
