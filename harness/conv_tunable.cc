#include "harness/conv_tunable.h"

#include <utility>
#include <vector>

#include "harness/conv_operands.h"
#include "harness/gdn_workload.h"
#include "tuner/measure/device_memory.h"

namespace cubinery {

Result<Check> ConvTunable::check(std::size_t configuration) {
  Result<std::shared_ptr<const Device>> device = device_of(context_);
  if (!device) return std::move(device).error();
  if (!check_) check_.emplace(*device, small_problem(problem_));
  // Runs are as short as they get where a launch does not fill the GPU, and long where it does: as
  // on one of a single multiprocessor.
  Target one_sm = target_;
  one_sm.sm_count = 1;
  std::vector<ConvCheck::Launch> launches;
  for (const Target& target : {target_, one_sm}) {
    Result<gdn::Conv> made =
        Harness::create(context_, check_->problem(), target, values(configuration));
    if (!made) return std::move(made).error();
    launches.push_back([conv = *std::move(made)](Stream stream, const gdn::ConvArgs& args) {
      return conv.launch(stream, args);
    });
  }
  return check_->run(launches);
}

Result<std::unique_ptr<Workload>> ConvTunable::workload(const Shape& shape) {
  auto made = gdn_shape(problem_, shape);
  if (!made) return std::move(made).error();
  Result<std::shared_ptr<const Device>> device = device_of(context_);
  if (!device) return std::move(device).error();
  Result<ConvOperands> operands = ConvOperands::create(
      *device, made->problem,
      {.form = {.lengths = made->lengths, .channels = made->channels}, .l2_bytes = l2_bytes_});
  if (!operands) return std::move(operands).error();
  return std::unique_ptr<Workload>(std::make_unique<GdnWorkload<gdn::Conv, ConvOperands>>(
      std::move(*operands), [this, problem = made->problem](std::size_t configuration) {
        return Harness::create(context_, problem, target_, values(configuration));
      }));
}

}  // namespace cubinery
