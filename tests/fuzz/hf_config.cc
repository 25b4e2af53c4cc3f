#include "cli/model_config.h"
#include "cubinery/gdn_models.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(hf_config) {
  for (const int tp : {1, 2, 8}) {
    const auto requests = read_model_config("config.json", input, {tp});
    if (!requests) {
      fuzz::require(requests.error().code() == Code::kInvalidArgument);
      continue;
    }
    for (const Request& request : *requests) (void)check(request.asked.problem).ok();
  }
  for (const std::string& type : gdn::model_types()) {
    const gdn::ModelOptions options{.model_type = type,
                                    .switches = {{"state_dtype", "auto"}, {"output_norm", "auto"}}};
    const auto problems = gdn::problems_for_model(input, 1, options);
    if (problems) (void)gdn::left_out(*problems);
  }
}
