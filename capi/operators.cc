// The operators' C functions: what all have, then what each has.
#include "capi/operators.h"

#include <algorithm>
#include <vector>

#include "runtime/gdn/verify/commit_args.h"

using namespace cubinery;
using namespace cubinery::capi;

#define CUBINERY_C_OPERATOR(Name, name)                                             \
  int cubinery_##name##_create(const CubineryContext* context, const char* problem, \
                               Cubinery##Name** name) {                             \
    return create(context, problem, #name, name);                                   \
  }                                                                                 \
  void cubinery_##name##_destroy(Cubinery##Name* name) { delete name; }

#define CUBINERY_C_LAUNCH(Name, name)                                    \
  int cubinery_##name##_launch(const Cubinery##Name* name, void* stream, \
                               const Cubinery##Name##Args* args) {       \
    return launch(#name, name, stream, args);                            \
  }

CUBINERY_C_OPERATOR(Decode, decode)
CUBINERY_C_OPERATOR(Prefill, prefill)
CUBINERY_C_OPERATOR(Verify, verify)
CUBINERY_C_OPERATOR(Commit, commit)
CUBINERY_C_OPERATOR(Conv, conv)

CUBINERY_C_LAUNCH(Decode, decode)
CUBINERY_C_LAUNCH(Verify, verify)
CUBINERY_C_LAUNCH(Commit, commit)
CUBINERY_C_LAUNCH(Conv, conv)
int cubinery_prefill_launch(const CubineryPrefill* prefill, void* stream,
                            const CubineryPrefillArgs* args, void* workspace,
                            size_t workspace_bytes) {
  return launch("prefill", prefill, stream, args, gdn::Workspace{workspace, workspace_bytes});
}

int cubinery_decode_choice(const CubineryDecode* decode, int64_t batch, char** choice) {
  return capi::choice("decode", decode, {{"batch", batch}}, batch, choice);
}
int cubinery_prefill_choice(const CubineryPrefill* prefill, int64_t tokens, int64_t sequences,
                            int64_t max_seqlen, char** choice) {
  return capi::choice(
      "prefill", prefill,
      {{"tokens", tokens}, {"sequences", sequences}, {"max_seqlen", max_seqlen}},
      gdn::PrefillSize{.tokens = tokens, .sequences = sequences, .max_seqlen = max_seqlen}, choice);
}
int cubinery_verify_choice(const CubineryVerify* verify, int64_t requests, int64_t tokens,
                           char** choice) {
  return capi::choice("verify", verify, {{"requests", requests}, {"tokens", tokens}},
                      gdn::VerifySize{.requests = requests, .tokens = tokens}, choice);
}
int cubinery_commit_choice(const CubineryCommit* commit, int64_t layers, int64_t requests,
                           char** choice) {
  return capi::choice("commit", commit, {{"layers", layers}, {"requests", requests}},
                      gdn::CommitSize{.layers = layers, .requests = requests}, choice);
}
int cubinery_conv_choice(const CubineryConv* conv, int64_t sequences, int64_t tokens,
                         int64_t channels, char** choice) {
  return capi::choice(
      "conv", conv, {{"sequences", sequences}, {"tokens", tokens}, {"channels", channels}},
      gdn::ConvSize{.sequences = sequences, .tokens = tokens, .channels = channels}, choice);
}

int cubinery_prefill_workspace_bytes(const CubineryPrefill* prefill, int64_t tokens,
                                     int64_t sequences, size_t* bytes) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("bytes", bytes));
    *bytes = 0;
    CUBINERY_RETURN_IF_ERROR(not_null("prefill", prefill));
    CUBINERY_RETURN_IF_ERROR(not_negative("tokens", tokens));
    CUBINERY_RETURN_IF_ERROR(not_negative("sequences", sequences));
    *bytes = prefill->value.workspace_bytes({.tokens = tokens, .sequences = sequences});
    return {};
  });
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
