#include "capi/decode.h"

#include "runtime/gdn/shared/problem_fields.h"

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
    CUBINERY_RETURN_IF_ERROR(
        bind_tensors(gdn::kDecodeOp, decode_tensors(given), decode->device, decode_tensors(bound)));
    if (given.norm_eps != nullptr) bound.norm_eps = *given.norm_eps;
    return decode->value.launch(static_cast<Stream>(stream), bound);
  });
}

int cubinery_decode_choice(const CubineryDecode* decode, int64_t batch, char** choice) {
  return capi::choice("decode", decode, {{"batch", batch}}, batch, choice);
}
