// The fields and rules of a prefill problem.  Pure functions.
#pragma once

#include <string_view>
#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_prefill.h"
#include "runtime/gdn/problem_check.h"

namespace cubinery {

namespace gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const PrefillProblem&) { return nullptr; }

// The problem with the fields that the others leave without meaning at their defaults.
PrefillProblem normalised(PrefillProblem problem);

}  // namespace gdn

// Persistent: names are those of manifests.
template <>
struct Fields<gdn::PrefillProblem> {
  static constexpr const char* kName = "gdn_prefill";
  using P = gdn::PrefillProblem;
  static constexpr auto kList = std::tuple_cat(gdn::operand_fields<P>(),
                                               std::tuple{
                                                   fixed("cu_seqlens_dtype", &P::cu_seqlens_dtype),
                                                   fixed("token_layout", &P::token_layout),
                                                   fixed("varlen", &P::varlen),
                                               },
                                               gdn::mode_fields<P>(),
                                               std::tuple{
                                                   fixed("checkpoints", &P::checkpoints),
                                                   fixed("checkpoint_every", &P::checkpoint_every),
                                                   fixed("batch_invariant", &P::batch_invariant),
                                               });
};

namespace gdn {
// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kPrefillOp = Fields<PrefillProblem>::kName;
}  // namespace gdn

}  // namespace cubinery
