#include "cli/model_config.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(hf_config) {
  for (const int tp : {1, 2, 8}) {
    const auto requests = read_model_config("config.json", input, {tp});
    if (!requests) {
      fuzz::require(requests.error().code() == Code::kInvalidArgument);
      continue;
    }
    for (const Request& request : *requests) (void)check(request.problem).ok();
  }
}
