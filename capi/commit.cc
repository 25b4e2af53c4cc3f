#include "capi/commit.h"

#include <algorithm>
#include <vector>

#include "runtime/gdn/shared/problem_fields.h"
#include "runtime/gdn/verify/commit_args.h"

using namespace cubinery;
using namespace cubinery::capi;

static_assert(CUBINERY_COMMIT_LAYER_WORDS == gdn::kLayerWords);

namespace {

Status bind_layer(const CubineryCommitLayer& from, int device, gdn::CommitLayer* to) {
  return bind_tensors(gdn::kCommitOp, layer_tensors(from), device, layer_tensors(*to));
}

}  // namespace

int cubinery_commit_create(const CubineryContext* context, const char* problem,
                           CubineryCommit** commit) {
  return guarded([&] { return create<gdn::CommitProblem>(context, problem, "commit", commit); });
}

void cubinery_commit_destroy(CubineryCommit* commit) { delete commit; }

int cubinery_commit_table(const CubineryCommit* commit, const CubineryCommitLayer* layers,
                          int64_t count, int64_t* words) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("commit", commit));
    CUBINERY_RETURN_IF_ERROR(not_null("layers", layers));
    CUBINERY_RETURN_IF_ERROR(not_negative("count", count));
    CUBINERY_RETURN_IF_ERROR(not_null("words", words));
    std::vector<gdn::CommitLayer> bound(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < bound.size(); ++i) {
      CUBINERY_RETURN_IF_ERROR(gdn::of_layer(i, bind_layer(layers[i], commit->device, &bound[i])));
    }
    const Result<std::vector<std::int64_t>> table = commit->value.table(bound);
    if (!table) return table.error().clone();
    std::copy(table->begin(), table->end(), words);
    return {};
  });
}

int cubinery_commit_launch(const CubineryCommit* commit, void* stream,
                           const CubineryCommitArgs* args) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("commit", commit));
    CubineryCommitArgs given;
    CUBINERY_RETURN_IF_ERROR(read_struct("args", args, &given));
    gdn::CommitArgs bound;
    CUBINERY_RETURN_IF_ERROR(bind_layer(given.layer, commit->device, &bound.layer));
    CUBINERY_RETURN_IF_ERROR(
        bind_tensors(gdn::kCommitOp, commit_tensors(given), commit->device, commit_tensors(bound)));
    CUBINERY_RETURN_IF_ERROR(bind_enable_pdl(gdn::kCommitOp, given.enable_pdl, &bound.enable_pdl));
    bound.scratch_slot = given.scratch_slot;
    return commit->value.launch(static_cast<Stream>(stream), bound);
  });
}

int cubinery_commit_choice(const CubineryCommit* commit, int64_t layers, int64_t requests,
                           char** choice) {
  return capi::choice("commit", commit, {{"layers", layers}, {"requests", requests}},
                      gdn::CommitSize{.layers = layers, .requests = requests}, choice);
}
