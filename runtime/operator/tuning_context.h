// What a context knows about tuning: its GPU, its toolchain and the results that it may use.
// gpu_identity() and choose() are in cubinery/tuning.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cubinery/tuning.h"
#include "tuner/choose/choose.h"
#include "tuner/choose/records.h"

namespace cubinery {

// What compiles these kernels (by name) in this context.  nvrtc is empty where the context has
// none: then any version will do.
Toolchain toolchain_of(const Context& context, std::vector<std::string> kernels);
Toolchain toolchain_of(const Context& context, const TuningSpace& space);

// Toolchain::templates of these kernels, found in these folders first.
std::string templates_digest(std::vector<std::string> kernels,
                             const std::vector<std::string>& template_dirs);

// Every result of an operator: those of the cache directory, then of its layers in order, then
// those inside the library.  Damaged lines and files that cannot be read are warnings in
// Options::log.  Files are read again when they have changed.
std::vector<TuningResult> tuning_results(const Context& context, std::string_view op);
// Only those that may answer the question, by its op, fixed and outline.  What cannot is not
// parsed: this takes a fraction of the time.
std::vector<TuningResult> tuning_results(const Context& context, const Question& question);

// "<cache directory>/tuning"; empty without a disk cache.
std::string tuning_directory(const Context& context);

}  // namespace cubinery
