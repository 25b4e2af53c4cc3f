#include "cli/trial.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "cubinery/gdn.h"
#include "tuner/gdn/gdn_check.h"

namespace cubinery {

Status trial_launch(const Options& options) {
  const Result<Context> context = Context::create(options);
  if (!context) return context.error().clone();
  Result<std::shared_ptr<const Device>> device = device_of(*context);
  if (!device) return std::move(device).error();
  const gdn::DecodeProblem problem{.heads = {.q = 2, .k = 2, .v = 4}};
  const Result<gdn::Decode> decode = context->prepare(problem);
  if (!decode) return decode.error().clone();
  GdnCheck check(*std::move(device), as_prefill(problem));
  const Result<Check> checked =
      check.run(0, [&](Stream stream, const gdn::PrefillArgs& args, std::size_t) {
        return decode->launch(stream, as_decode(args));
      });
  if (!checked) return checked.error().clone();
  if (checked->passed()) return {};
  return Status(Code::kDriver,
                fmt::format("wrong numbers: {}: {:.3g} times the error that is allowed",
                            checked->worst, checked->error));
}

}  // namespace cubinery
