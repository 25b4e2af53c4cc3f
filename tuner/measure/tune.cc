#include <memory>
#include <utility>

#include "tuner/measure/clocks.h"
#include "tuner/measure/device_memory.h"
#include "tuner/measure/timer.h"
#include "tuner/measure/tune_run.h"
#include "tuner/measure/tune_with.h"

namespace cubinery {

Result<TuneSummary> tune_with(const Context& context, const GpuIdentity& gpu,
                              const std::string& driver, Timer& timer, Tunable& tunable,
                              const std::vector<Shape>& shapes, const TuneSettings& settings) {
  return TuneRun({context, gpu, driver, timer}, tunable, settings).run(shapes);
}

Result<TuneSummary> tune(const Context& context, Tunable& tunable, const std::vector<Shape>& shapes,
                         const TuneSettings& settings) {
  const Result<GpuIdentity> gpu = gpu_identity(context);
  if (!gpu) return gpu.error().clone();
  const Result<std::shared_ptr<const Device>> device = device_of(context);
  if (!device) return device.error().clone();
  const Result<std::unique_ptr<Timer>> timer = make_timer(context);
  if (!timer) return timer.error().clone();
  return tune_with(context, *gpu, driver_version((*device)->driver()), **timer, tunable, shapes,
                   settings);
}

}  // namespace cubinery
