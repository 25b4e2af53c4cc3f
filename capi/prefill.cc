#include "capi/prefill.h"

#include "runtime/gdn/shared/problem_fields.h"

using namespace cubinery;
using namespace cubinery::capi;

int cubinery_prefill_create(const CubineryContext* context, const char* problem,
                            CubineryPrefill** prefill) {
  return guarded([&] { return create<gdn::PrefillProblem>(context, problem, "prefill", prefill); });
}

void cubinery_prefill_destroy(CubineryPrefill* prefill) { delete prefill; }

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

int cubinery_prefill_choice(const CubineryPrefill* prefill, int64_t tokens, int64_t sequences,
                            int64_t max_seqlen, char** choice) {
  return capi::choice(
      "prefill", prefill,
      {{"tokens", tokens}, {"sequences", sequences}, {"max_seqlen", max_seqlen}},
      gdn::PrefillSize{.tokens = tokens, .sequences = sequences, .max_seqlen = max_seqlen}, choice);
}

int cubinery_prefill_launch(const CubineryPrefill* prefill, void* stream,
                            const CubineryPrefillArgs* args, void* workspace,
                            size_t workspace_bytes) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("prefill", prefill));
    CubineryPrefillArgs given;
    CUBINERY_RETURN_IF_ERROR(read_struct("args", args, &given));
    gdn::PrefillArgs bound;
    CUBINERY_RETURN_IF_ERROR(bind_shared(gdn::kPrefillOp, given, prefill->device, &bound));
    CUBINERY_RETURN_IF_ERROR(bind_tensors(gdn::kPrefillOp, prefill_tensors(given), prefill->device,
                                          prefill_tensors(bound)));
    bound.max_seqlen = given.max_seqlen;
    return prefill->value.launch(static_cast<Stream>(stream), bound, {workspace, workspace_bytes});
  });
}
