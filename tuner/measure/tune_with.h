// tune() with a timer of the caller's choice.
#pragma once

#include "cubinery/tuning.h"
#include "tuner/measure/timer.h"

namespace cubinery {

// As tune(), on the GPU that `gpu` describes, timed by `timer`.  Kernels are compiled by `context`,
// which needs no device.
Result<TuneSummary> tune_with(const Context& context, const GpuIdentity& gpu,
                              const std::string& driver, Timer& timer, Tunable& tunable,
                              const std::vector<Shape>& shapes, const TuneSettings& settings);

}  // namespace cubinery
