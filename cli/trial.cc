#include "cli/trial.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "cubinery/gdn.h"
#include "harness/check.h"
#include "harness/operators.h"

namespace cubinery {

Status trial_launch(const Options& options) {
  const Result<Context> context = Context::create(options);
  if (!context) return context.error().clone();
  Result<std::shared_ptr<const Device>> device = device_of(*context);
  if (!device) return std::move(device).error();
  using Harness = HarnessOf<gdn::DecodeProblem>;
  const gdn::DecodeProblem problem{.heads = {.q = 2, .k = 2, .v = 4}};
  const Result<gdn::Decode> decode = context->prepare(problem);
  if (!decode) return decode.error().clone();
  GdnCheck check(*std::move(device), Harness::reference(problem));
  const Result<Check> checked = check.run(0, [&](Stream stream, const auto& args, std::size_t) {
    return Harness::launch(*decode, stream, args, {});
  });
  if (!checked) return checked.error().clone();
  if (checked->passed()) return {};
  return Status(Code::kDriver,
                fmt::format("wrong numbers: {}: {:.3g} times the error that is allowed",
                            checked->worst, checked->error));
}

}  // namespace cubinery
