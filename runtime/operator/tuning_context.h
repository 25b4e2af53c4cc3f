// What a context knows about tuning: its GPU, its toolchain and the results that it may use.
// gpu_identity() and choose() are in cubinery/tuning.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cache/trust.h"
#include "codegen/arch.h"
#include "cubinery/tuning.h"
#include "results/choose.h"
#include "results/records.h"
#include "results/target.h"

namespace cubinery {

// The architecture of a context, which is a known one; and the one of a name, or kInvalidArgument.
Arch arch_of(const Context& context);
Result<Arch> check_arch(std::string_view op, std::string_view name);
// The GPU that a context's operators are planned for; a typical one of the architecture where there
// is no device.
Target target_of(const Context& context);
// Options::paths.
const std::vector<std::string>& path_options(const Context& context);
Trust trust_of(const Context& context);

// Paths by name, and the templates of their kernels.
using PathKernels = std::map<std::string, std::vector<std::string>, std::less<>>;
PathKernels path_kernels(const TuningSpace& space);
// With digests of the texts of a space ("text <digest>"), whose includes are read for it.
PathKernels path_kernels(const Context& context, const TuningSpace& space);

// What compiles the kernels of these paths in this context, whose NVRTC is opened for it.  nvrtc is
// empty where the context has none: then any version will do.
Toolchain toolchain_of(const Context& context, const PathKernels& paths);

// Every result that is wanted: those of the cache directory, then of its layers in order, then
// those inside the library.  Damaged lines and files that cannot be read are warnings in
// Options::log.  Files are read again when they have changed.  What is not wanted is not parsed:
// that takes a fraction of the time.
std::vector<TuningResult> tuning_results(const Context& context, const Wanted& wanted);

// The ladder for kernels of which the GPU and the toolchain are not given yet.
Ladder ladder_of(const Context& context, Wanted wanted, const PathKernels& paths);

// All results of one operator, and the templates that they must have been measured with.
struct KnownResults {
  std::vector<TuningResult> results;
  std::map<std::string, std::string, std::less<>> templates;  // Toolchain::templates
};
// Those inside the library, for its own templates.
KnownResults known_results_inside(std::string_view op, const PathKernels& paths);
KnownResults known_results_of(const Context& context, std::string_view op,
                              const PathKernels& paths);

// "<cache directory>/tuning"; empty without a disk cache.
std::string tuning_directory(const Context& context);

// Says in Options::log that tuned kernels cannot be had.  Returns the reason as Choice::why has it.
std::string without_results(const Context& context, std::string_view op, const Status& error);

}  // namespace cubinery
