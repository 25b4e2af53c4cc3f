#include "harness/gdn_tunable.h"

#include <charconv>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "harness/conv_tunable.h"
#include "harness/gdn_check.h"
#include "harness/gdn_shapes.h"
#include "harness/gdn_workload.h"
#include "harness/operator_tunable.h"
#include "runtime/operator/planner.h"
#include "runtime/operator/tuning_context.h"
#include "tuner/measure/device_memory.h"

namespace cubinery {
namespace {

using Values = std::vector<TunedValue>;

// How the reference goes through the tokens: in chunks that end where the configuration's do; 0:
// token by token.
int chunk_size_of(const Values& values) {
  int size = 0;
  for (const TunedValue& value : values) {
    if (value.name != "chunk_size") continue;
    std::from_chars(value.value.data(), value.value.data() + value.value.size(), size);
  }
  return size;
}

template <class Problem>
class GdnTunable final : public OperatorTunable<Problem> {
 public:
  using Base = OperatorTunable<Problem>;
  using Harness = typename Base::Harness;
  using Operator = typename Base::Operator;
  using Base::Base;

  Result<Check> check(std::size_t configuration) override {
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    if (!check_) {
      check_.emplace(*device, small_problem(Harness::reference(problem_)),
                     Harness::steps(problem_));
    }
    Problem small = problem_;
    small.heads = check_->problem().heads;
    if constexpr (requires { small.checkpoint_every; }) {
      small.checkpoint_every = check_->problem().checkpoint_every;
    }
    // What a configuration does in large launches only, as heads that share blocks: every other
    // small one is made to, on a GPU without multiprocessors.
    Target no_sms = target_;
    no_sms.sm_count = 0;
    std::vector<Operator> operators;
    for (const Target& target : {target_, no_sms}) {
      Result<Operator> made = Harness::create(context_, small, target, values(configuration));
      if (!made) return std::move(made).error();
      operators.push_back(std::move(*made));
    }
    const int chunk_size = chunk_size_of(values(configuration));
    Result<DeviceMemory> workspace = DeviceMemory::allocate(
        *device,
        Harness::workspace_bytes(operators.front(), check_lengths(check_->problem(), chunk_size)));
    if (!workspace) return std::move(workspace).error();
    return check_->run(chunk_size,
                       [&](Stream stream, const auto& args, std::size_t number) -> Status {
                         if (workspace->bytes() > 0)
                           CUBINERY_RETURN_IF_ERROR(workspace->set(kPoison));
                         return Harness::launch(operators[number % operators.size()], stream, args,
                                                {workspace->data(), workspace->bytes()});
                       });
  }

  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override {
    auto made = gdn_shape(problem_, shape);
    if (!made) return std::move(made).error();
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    const std::size_t workspace =
        Harness::most_workspace_bytes(made->problem, target_, made->lengths);
    Result<GdnOperands> operands =
        GdnOperands::create(*device, Harness::reference(made->problem),
                            {.lengths = made->lengths,
                             .parents = Harness::steps(made->problem).parents,
                             .workspace_bytes = workspace,
                             .l2_bytes = l2_bytes_,
                             .separate_out = Harness::separate_out(made->problem)});
    if (!operands) return std::move(operands).error();
    return std::unique_ptr<Workload>(std::make_unique<GdnWorkload<Operator>>(
        std::move(*operands), [this, problem = made->problem](std::size_t configuration) {
          return Harness::create(context_, problem, target_, values(configuration));
        }));
  }

 private:
  static constexpr unsigned char kPoison = 0xff;  // what a kernel must not read is NaN

  using Base::context_;
  using Base::l2_bytes_;
  using Base::problem_;
  using Base::target_;
  using Base::values;

  std::optional<GdnCheck> check_;
};

template <class Problem>
Result<std::unique_ptr<Tunable>> make(const Context& context, const Problem& problem) {
  const Target target = target_of(context);
  const auto planner = Planner<Problem>::create(problem, target, path_options(context));
  if (!planner) return planner.error().clone();
  const Result<GpuIdentity> gpu = gpu_identity(context);
  using Made = std::conditional_t<std::is_same_v<Problem, gdn::ConvProblem>, ConvTunable,
                                  GdnTunable<Problem>>;
  return std::unique_ptr<Tunable>(
      std::make_unique<Made>(context, *planner, problem, target, gpu ? gpu->l2_bytes : 0));
}

}  // namespace

Result<std::unique_ptr<Tunable>> make_tunable(const Context& context, const Problem& problem) {
  return std::visit([&](const auto& one) { return make(context, one); }, problem);
}

}  // namespace cubinery
