// The path of commit.
#pragma once

#include "gdn_commit/fields.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery {
namespace gdn {

// All accepted tokens of a request at once, on the tensor cores (mma.sync, sm_80 and newer).
using CommitKeyPath = KeyedPath<CommitProblem, CommitRunner, GdnCommitKey>;
const CommitKeyPath& commit_wy();

}  // namespace gdn

// Beside the path.
extern template class KeyedPath<gdn::CommitProblem, gdn::CommitRunner, GdnCommitKey>;

}  // namespace cubinery
