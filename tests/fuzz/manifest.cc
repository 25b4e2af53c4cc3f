#include "cli/manifest.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(manifest) {
  const auto requests = read_manifest("list.json", input);
  if (!requests) return fuzz::require(requests.error().code() == Code::kInvalidArgument);
  for (const Request& request : *requests) {
    if (request.own_kernel) {
      if (!request.own_kernel->is_text()) continue;
      const std::string json = request.own_kernel->json();
      const Result<KernelSource> source = kernel_source_from_json(json);
      fuzz::require(source && to_json(*source) == json);
      continue;
    }
    (void)check(request.asked.problem).ok();
    const Result<Problem> again =
        parse_problem(operator_of(request.asked.problem), to_json(request.asked.problem));
    fuzz::require(again && to_json(*again) == to_json(request.asked.problem));
  }
}
