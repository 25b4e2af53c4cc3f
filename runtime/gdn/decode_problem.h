// From a decode problem to the keys of its kernels.  Pure functions.
#pragma once

#include <string_view>
#include <tuple>

#include "cubinery/fields.h"
#include "cubinery/gdn_decode.h"
#include "gdn_decode/key.h"
#include "runtime/gdn/problem_check.h"
#include "runtime/registry/known_results.h"

namespace cubinery {

namespace gdn {

// Problems have no rules that depend on the table alone: check() explains what it refuses.
inline const char* why_invalid(const DecodeProblem&) { return nullptr; }

// The two kernels that the operator has where nothing was measured: what the cost model chooses
// from.  They sum in the same order, so a request gets the same bits from both.
struct DecodeKeys {
  GdnDecodeKey wide;  // many value columns per warp: few, long streams of loads, for large batches
  GdnDecodeKey narrow;  // few value columns per warp: more warps, for small batches
};

// Requires: problem.check() is OK.
DecodeKeys decode_keys(const DecodeProblem& problem);

// As problem.kernels(), with these results in place of those inside the library.
Result<std::vector<KernelSpec>> kernels(const DecodeProblem& problem, std::string_view arch,
                                        const KnownResults& known);

}  // namespace gdn

// Persistent: names are those of manifests.
template <>
struct Fields<gdn::DecodeProblem> {
  static constexpr const char* kName = "gdn_decode";
  using P = gdn::DecodeProblem;
  static constexpr auto kList = std::tuple_cat(gdn::operand_fields<P>(), gdn::mode_fields<P>());
};

namespace gdn {
// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kDecodeOp = Fields<DecodeProblem>::kName;
}  // namespace gdn

}  // namespace cubinery
