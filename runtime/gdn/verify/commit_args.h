// From the tensors of layers to their records, and from the arguments of a commit to the parameters
// of its kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cubinery/gdn_commit.h"
#include "gdn_commit/key.h"

namespace cubinery::gdn {

// int64 of a layer in a table.
inline constexpr std::int64_t kLayerWords = sizeof(GdnCommitLayer) / 8;
static_assert(kLayerWords == 32, "CommitArgs::layers says so, as does c_api.h");

// Checks the tensors of a layer.
Status bind_layer(const CommitProblem& problem, const CommitLayer& layer, GdnCommitLayer* record);

// "layer 2: gdn_commit: v ...": what was found of one of several.
Status of_layer(std::size_t number, Status status);

// Checks all else and fills all parameters.
Status bind_commit(const CommitProblem& problem, const CommitArgs& args, GdnCommitParams* params);

}  // namespace cubinery::gdn
