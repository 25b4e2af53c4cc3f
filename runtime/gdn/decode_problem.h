// The fields and rules of a decode problem.  Pure functions.
#pragma once

#include <string_view>
#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_decode.h"
#include "runtime/gdn/problem_check.h"

namespace cubinery {

namespace gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const DecodeProblem&) { return nullptr; }

// The problem with the fields that the others leave without meaning at their defaults.
DecodeProblem normalised(DecodeProblem problem);

}  // namespace gdn

// Persistent: names are those of manifests.
template <>
struct Fields<gdn::DecodeProblem> {
  static constexpr const char* kName = "gdn_decode";
  using P = gdn::DecodeProblem;
  static constexpr auto kList = std::tuple_cat(gdn::operand_fields<P>(), gdn::mode_fields<P>(),
                                               std::tuple{
                                                   fixed("batch_invariant", &P::batch_invariant),
                                               });
};

namespace gdn {
// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kDecodeOp = Fields<DecodeProblem>::kName;
}  // namespace gdn

}  // namespace cubinery
