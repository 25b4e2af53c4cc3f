// Whether a launch on the tuner's operands computes what it should: part of it against the double
// reference.
#pragma once

#include "benchmarks/operands.h"
#include "cubinery/gdn.h"
#include "harness/gdn_operands.h"

namespace cubinery::bench {

// Launch once on set 0, whose states must be as they were made, and compare: a few requests of a
// decode, a verification or a commit of one layer (and the states after their last tokens, where
// only these are kept); two heads of the shortest and of the longest sequence of a prefill, their
// first 4096 tokens, and their final state where that is the whole sequence.
Errors launch_errors(const gdn::Decode& decode, const Gpu& gpu, const GdnOperands& operands);
Errors launch_errors(const gdn::Verify& verify, const Gpu& gpu, const GdnOperands& operands);
// States alone.
Errors launch_errors(const gdn::Commit& commit, const Gpu& gpu, const GdnOperands& operands);
Errors launch_errors(const gdn::Prefill& prefill, const Gpu& gpu, const GdnOperands& operands);

}  // namespace cubinery::bench
