#include "runtime/registry/known_results.h"

#include <map>

#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/prefill_problem.h"
#include "runtime/operator/tuning_context.h"
#include "runtime/registry/problem.h"
#include "tuner/choose/embedded.h"

namespace cubinery {
namespace {

std::map<std::string, KnownResults, std::less<>> read_embedded() {
  std::map<std::string, KnownResults, std::less<>> known;
  for (const std::string& op : operator_names()) {
    known[op].templates = templates_digest(kernel_names(op), {});
  }
  for (TuningResult& result : embedded_results()) {
    const auto found = known.find(result.setting.op);
    if (found != known.end()) found->second.results.push_back(std::move(result));
  }
  return known;
}

}  // namespace

std::vector<std::string> kernel_names(std::string_view op) {
  if (op == gdn::kPrefillOp) {
    return {Fields<GdnPrefillChunksKey>::kName, Fields<GdnPrefillScanKey>::kName};
  }
  return {std::string(op)};
}

const KnownResults& embedded_known_results(std::string_view op) {
  static const auto kKnown = read_embedded();
  static const KnownResults kNone;
  const auto found = kKnown.find(op);
  return found != kKnown.end() ? found->second : kNone;
}

KnownResults known_results(const Context& context, std::string_view op) {
  return {.results = tuning_results(context, op),
          .templates = toolchain_of(context, kernel_names(op)).templates};
}

}  // namespace cubinery
