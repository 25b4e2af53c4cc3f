// Results of tuning as prewarming needs them: which kernels they can ask for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cubinery/context.h"
#include "tuner/choose/records.h"

namespace cubinery {

// The kernels of an operator of the library, by name.
std::vector<std::string> kernel_names(std::string_view op);

// Results of one operator, and the digest of the templates that they must have been measured with.
struct KnownResults {
  std::vector<TuningResult> results;
  std::string templates;  // Toolchain::templates
};

// Those inside the library, for its own templates.
const KnownResults& embedded_known_results(std::string_view op);
// Those that an operator of this context may use.
KnownResults known_results(const Context& context, std::string_view op);

}  // namespace cubinery
