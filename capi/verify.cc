#include "capi/verify.h"

#include "runtime/gdn/shared/problem_fields.h"

using namespace cubinery;
using namespace cubinery::capi;

int cubinery_verify_create(const CubineryContext* context, const char* problem,
                           CubineryVerify** verify) {
  return guarded([&] { return create<gdn::VerifyProblem>(context, problem, "verify", verify); });
}

void cubinery_verify_destroy(CubineryVerify* verify) { delete verify; }

int cubinery_verify_launch(const CubineryVerify* verify, void* stream,
                           const CubineryVerifyArgs* args) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null("verify", verify));
    CubineryVerifyArgs given;
    CUBINERY_RETURN_IF_ERROR(read_struct("args", args, &given));
    gdn::VerifyArgs bound;
    CUBINERY_RETURN_IF_ERROR(bind_shared(gdn::kVerifyOp, given, verify->device, &bound));
    CUBINERY_RETURN_IF_ERROR(
        bind_tensors(gdn::kVerifyOp, verify_tensors(given), verify->device, verify_tensors(bound)));
    return verify->value.launch(static_cast<Stream>(stream), bound);
  });
}

int cubinery_verify_choice(const CubineryVerify* verify, int64_t requests, int64_t tokens,
                           char** choice) {
  return capi::choice("verify", verify, {{"requests", requests}, {"tokens", tokens}},
                      gdn::VerifySize{.requests = requests, .tokens = tokens}, choice);
}
