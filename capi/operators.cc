// CubineryDecode and CubineryPrefill.
#include <cstddef>
#include <string_view>

#include "capi/arguments.h"
#include "capi/dl_tensor.h"
#include "capi/documents.h"
#include "capi/handles.h"
#include "capi/last_error.h"
#include "capi/tensors.h"
#include "runtime/gdn/decode_problem.h"
#include "runtime/gdn/prefill_problem.h"

namespace cubinery::capi {
namespace {

// `from` and `to`: the same list of capi/tensors.h for the two structs.
Status bind_tensors(std::string_view op, const auto& from, int device, const auto& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto& [name, tensor] = from[i];
    CUBINERY_RETURN_IF_ERROR(from_dlpack({op, name}, *tensor, device, to[i].tensor));
  }
  return {};
}

template <class C, class Cpp>
Status bind_shared(std::string_view op, const C& from, int device, Cpp* to) {
  CUBINERY_RETURN_IF_ERROR(bind_tensors(op, shared_tensors(from), device, shared_tensors(*to)));
  to->states.scratch_slot = from.states.scratch_slot;
  if (from.scale != nullptr) to->scale = *from.scale;
  if (from.programmatic != 0 && from.programmatic != 1) {
    return invalid({op, "programmatic"}, fmt::format("is {}; accepted: 0, 1", from.programmatic));
  }
  to->programmatic = from.programmatic == 1;
  return {};
}

template <class Problem, class Handle>
Status create(const CubineryContext* context, const char* problem, std::string_view name,
              Handle** handle) {
  CUBINERY_RETURN_IF_ERROR(cleared(name, handle));
  CUBINERY_RETURN_IF_ERROR(not_null("context", context));
  CUBINERY_RETURN_IF_ERROR(not_null("problem", problem));
  const Result<Problem> parsed = Problem::from_json(problem);
  if (!parsed) return parsed.error().clone();
  auto prepared = context->value.prepare(*parsed);
  if (!prepared) return std::move(prepared).error();
  *handle = new Handle{*std::move(prepared), context->value.device()};
  return {};
}

Status not_negative(std::string_view name, std::int64_t value) {
  if (value >= 0) return {};
  return Status(Code::kInvalidArgument, fmt::format("{} is {}; accepted: 0 or more", name, value));
}

Json json_of(const Chosen& chosen) {
  return {{"path", chosen.path},
          {"configuration", chosen.configuration},
          {"rung", to_string(chosen.rung)},
          {"why", chosen.why}};
}

}  // namespace
}  // namespace cubinery::capi

using namespace cubinery;
using namespace cubinery::capi;

int cubinery_decode_create(const CubineryContext* context, const char* problem,
                           CubineryDecode** decode) {
  return guarded([&] { return create<gdn::DecodeProblem>(context, problem, "decode", decode); });
}

void cubinery_decode_destroy(CubineryDecode* decode) { delete decode; }

int cubinery_decode_launch(const CubineryDecode* decode, void* stream,
                           const CubineryDecodeArgs* args) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("decode", decode));
    CubineryDecodeArgs given;
    CUBINERY_RETURN_IF_ERROR(read_struct("args", args, &given));
    gdn::DecodeArgs bound;
    CUBINERY_RETURN_IF_ERROR(bind_shared(gdn::kDecodeOp, given, decode->device, &bound));
    return decode->value.launch(static_cast<Stream>(stream), bound);
  });
}

int cubinery_decode_choice(const CubineryDecode* decode, int64_t batch, char** choice) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("choice", choice));
    CUBINERY_RETURN_IF_ERROR(not_null("decode", decode));
    CUBINERY_RETURN_IF_ERROR(not_negative("batch", batch));
    *choice = json_text(json_of(decode->value.choice(batch)));
    return {};
  });
}

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
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("choice", choice));
    CUBINERY_RETURN_IF_ERROR(not_null("prefill", prefill));
    CUBINERY_RETURN_IF_ERROR(not_negative("tokens", tokens));
    CUBINERY_RETURN_IF_ERROR(not_negative("sequences", sequences));
    CUBINERY_RETURN_IF_ERROR(not_negative("max_seqlen", max_seqlen));
    *choice = json_text(json_of(prefill->value.choice(
        {.tokens = tokens, .sequences = sequences, .max_seqlen = max_seqlen})));
    return {};
  });
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
