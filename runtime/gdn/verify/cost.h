// The cost models of verification and commit: the choice where nothing was measured.  Pure
// functions.
#pragma once

#include <cstdint>

#include "gdn_commit/key.h"
#include "gdn_verify/key.h"
#include "gdn_verify_wy/key.h"
#include "results/target.h"

namespace cubinery::gdn {

// Microseconds of one launch over so many states (requests x heads), each with so many tokens.
double verify_us(const GdnVerifyKey& key, std::int64_t states, std::int64_t tokens,
                 const Target& target);
double verify_us(const GdnVerifyWyKey& key, std::int64_t states, std::int64_t tokens,
                 const Target& target);
// So many states (layers x requests x heads).
double commit_us(const GdnCommitKey& key, std::int64_t states, const Target& target);

}  // namespace cubinery::gdn
