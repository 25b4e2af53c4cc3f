// The operators' C functions: what all have, then what each has.
#include "capi/operators.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/gdn/verify/commit_args.h"

using namespace cubinery;
using namespace cubinery::capi;

// The numbers of a size, and what launches take besides: as parameters, and given on.
#define CUBINERY_SIZES_1 int64_t a
#define CUBINERY_SIZES_2 CUBINERY_SIZES_1, int64_t b
#define CUBINERY_SIZES_3 CUBINERY_SIZES_2, int64_t c
#define CUBINERY_GIVEN_1 a
#define CUBINERY_GIVEN_2 CUBINERY_GIVEN_1, b
#define CUBINERY_GIVEN_3 CUBINERY_GIVEN_2, c
#define CUBINERY_TAKES_Nothing
#define CUBINERY_TAKES_Workspace , void *workspace, size_t bytes
#define CUBINERY_GIVEN_Nothing
#define CUBINERY_GIVEN_Workspace \
  , gdn::Workspace { workspace, bytes }

// Types have no parentheses: NOLINTBEGIN(bugprone-macro-parentheses)
#define CUBINERY_C_OPERATOR(Name, name, sizes, more)                                     \
  int cubinery_##name##_create(const CubineryContext* context, const char* problem,      \
                               Cubinery##Name** name) {                                  \
    return create(context, problem, #name, name);                                        \
  }                                                                                      \
  void cubinery_##name##_destroy(Cubinery##Name* name) { capi::destroy(name); }          \
  int cubinery_##name##_launch(const Cubinery##Name* name, void* stream,                 \
                               const Cubinery##Name##Args* args CUBINERY_TAKES_##more) { \
    return launch(#name, name, stream, args CUBINERY_GIVEN_##more);                      \
  }                                                                                      \
  int cubinery_##name##_choice(const Cubinery##Name* name, CUBINERY_SIZES_##sizes,       \
                               char** choice) {                                          \
    return capi::choice(#name, name, choice, CUBINERY_GIVEN_##sizes);                    \
  }
// NOLINTEND(bugprone-macro-parentheses)
CUBINERY_OPERATORS(CUBINERY_C_OPERATOR)

int cubinery_prefill_workspace_bytes(const CubineryPrefill* prefill, int64_t tokens,
                                     int64_t sequences, size_t* bytes) {
  return reported([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("bytes", bytes));
    *bytes = 0;
    CUBINERY_RETURN_IF_ERROR(not_null("prefill", prefill));
    CUBINERY_RETURN_IF_ERROR(not_negative("tokens", tokens));
    CUBINERY_RETURN_IF_ERROR(not_negative("sequences", sequences));
    *bytes = prefill->value.workspace_bytes({.tokens = tokens, .sequences = sequences});
    return {};
  });
}

int cubinery_rank_prefill_create(const CubineryContext* context, const CubineryPrefill* prefill,
                                 void* nccl_comm, int64_t timeout_ms,
                                 CubineryRankPrefill** rank_prefill) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("rank_prefill", rank_prefill));
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    CUBINERY_RETURN_IF_ERROR(not_null("prefill", prefill));
    CUBINERY_RETURN_IF_ERROR(not_null("nccl_comm", nccl_comm));
    CUBINERY_RETURN_IF_ERROR(at_least(1, "timeout_ms", timeout_ms));
    auto ranks =
        NcclRanks::create(context->value, nccl_comm, std::chrono::milliseconds(timeout_ms));
    if (!ranks) return std::move(ranks).error();
    auto made = gdn::RankPrefill::create(prefill->value, *std::move(ranks));
    if (!made) return std::move(made).error();
    *rank_prefill = new CubineryRankPrefill{{*std::move(made), prefill->device}};
    return {};
  });
}

void cubinery_rank_prefill_destroy(CubineryRankPrefill* rank_prefill) {
  capi::destroy(rank_prefill);
}

int cubinery_rank_prefill_launch(const CubineryRankPrefill* rank_prefill, void* stream,
                                 const CubineryPrefillArgs* args, void* workspace, size_t bytes,
                                 int source, int target) {
  const auto rank = [](int given) { return given == -1 ? std::nullopt : std::optional(given); };
  const gdn::RankNeighbours neighbours{.source = rank(source), .target = rank(target)};
  return launch("rank_prefill", rank_prefill, stream, args, gdn::Workspace{workspace, bytes},
                neighbours);
}

static_assert(CUBINERY_COMMIT_LAYER_WORDS == gdn::kLayerWords);

int cubinery_commit_table(const CubineryCommit* commit, const CubineryCommitLayer* layers,
                          int64_t count, int64_t* words) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("commit", commit));
    CUBINERY_RETURN_IF_ERROR(not_null("layers", layers));
    CUBINERY_RETURN_IF_ERROR(not_negative("count", count));
    CUBINERY_RETURN_IF_ERROR(not_null("words", words));
    std::vector<gdn::CommitLayer> bound(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < bound.size(); ++i) {
      CUBINERY_RETURN_IF_ERROR(
          gdn::of_layer(i, bind_tensors(gdn::kCommitOp, layers[i], commit->device, &bound[i])));
    }
    const Result<std::vector<std::int64_t>> table = commit->value.table(bound);
    if (!table) return table.error().clone();
    std::copy(table->begin(), table->end(), words);
    return {};
  });
}
