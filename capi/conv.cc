#include "capi/conv.h"

#include "runtime/gdn/shared/problem_fields.h"

using namespace cubinery;
using namespace cubinery::capi;

int cubinery_conv_create(const CubineryContext* context, const char* problem, CubineryConv** conv) {
  return guarded([&] { return create<gdn::ConvProblem>(context, problem, "conv", conv); });
}

void cubinery_conv_destroy(CubineryConv* conv) { delete conv; }

int cubinery_conv_launch(const CubineryConv* conv, void* stream, const CubineryConvArgs* args) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("conv", conv));
    CubineryConvArgs given;
    CUBINERY_RETURN_IF_ERROR(read_struct("args", args, &given));
    gdn::ConvArgs bound;
    CUBINERY_RETURN_IF_ERROR(
        bind_tensors(gdn::kConvOp, conv_tensors(given), conv->device, conv_tensors(bound)));
    CUBINERY_RETURN_IF_ERROR(bind_numbers(gdn::kConvOp, given, &bound));
    bound.max_seqlen = given.max_seqlen;
    return conv->value.launch(static_cast<Stream>(stream), bound);
  });
}

int cubinery_conv_choice(const CubineryConv* conv, int64_t sequences, int64_t tokens,
                         int64_t channels, char** choice) {
  return capi::choice(
      "conv", conv, {{"sequences", sequences}, {"tokens", tokens}, {"channels", channels}},
      gdn::ConvSize{.sequences = sequences, .tokens = tokens, .channels = channels}, choice);
}
