// From the tensors of layers to their records, and from the arguments of a commit to the parameters
// of its kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cubinery/gdn_commit.h"
#include "gdn_commit/key.h"

namespace cubinery::gdn {

// int64 of a layer in a table.
inline constexpr std::int64_t kLayerWords = sizeof(GdnCommitLayer) / 8;
static_assert(kLayerWords == 32, "CommitArgs::layers says so, as does c_api.h");

// Checks the tensors of a layer, which is told apart by `number` in messages, or is the only one.
Status bind_layer(const CommitProblem& problem, const CommitLayer& layer,
                  std::optional<std::size_t> number, GdnCommitLayer* record);

// Checks all else and fills all parameters.
Status bind_commit(const CommitProblem& problem, const CommitArgs& args, GdnCommitParams* params);

}  // namespace cubinery::gdn
