#include "cli/report_stale.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cubinery/context.h"
#include "results/choose.h"
#include "runtime/jit/template_source.h"
#include "runtime/operator/tuning_context.h"
#include "runtime/registry/operators.h"

namespace cubinery {
namespace {

// What compiles the paths of `op` for `arch` here; nullopt: nothing does.
std::optional<Toolchain> toolchain_for(const std::string& op, const std::string& arch,
                                       const Options& options) {
  PathKernels paths = path_kernels(op);
  // A kernel of the user's own, which is tuned alone.
  if (paths.empty()) paths = {{"", {op}}};
  for (const auto& [path, kernels] : paths) {
    const bool found = std::all_of(kernels.begin(), kernels.end(), [&](const std::string& kernel) {
      return find_template(kernel, options.template_dirs, trust_of(options)).has_value();
    });
    if (!found) return std::nullopt;
  }
  Options of_arch = options;
  of_arch.device = kNoDevice;
  of_arch.arch = arch;
  const Result<Context> context = Context::create(std::move(of_arch));
  if (!context) return std::nullopt;
  return toolchain_of(*context, paths);
}

}  // namespace

void mark_stale(const Options& options, TuningReport* report) {
  std::map<std::pair<std::string, std::string>, std::optional<Toolchain>> known;
  for (ReportedSetting& reported : report->settings) {
    if (!reported.result) continue;
    const Setting& setting = reported.setting;
    const auto [place, is_new] = known.try_emplace({setting.op, setting.gpu.arch});
    if (is_new) place->second = toolchain_for(setting.op, setting.gpu.arch, options);
    if (place->second) {
      const Decision decision = decision_of(*reported.result, /*batch_invariant=*/false);
      reported.stale = stale(setting, decision, *place->second).value_or("");
    }
  }
}

}  // namespace cubinery
