#include "cli/manifest.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(manifest) {
  const auto requests = read_manifest("list.json", input);
  if (!requests) return fuzz::require(requests.error().code() == Code::kInvalidArgument);
  for (const Request& request : *requests) {
    (void)check(request.asked.problem).ok();
    const Result<Problem> again =
        parse_problem(operator_of(request.asked.problem), to_json(request.asked.problem));
    fuzz::require(again && to_json(*again) == to_json(request.asked.problem));
  }
}
