#include "harness/tunable.h"

#include <charconv>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "harness/check.h"
#include "harness/conv_check.h"
#include "harness/shapes.h"
#include "harness/workload.h"
#include "runtime/operator/planner.h"
#include "runtime/operator/tuning_context.h"
#include "tuner/measure/device_memory.h"

namespace cubinery {
namespace {

using Values = std::vector<TunedValue>;

constexpr unsigned char kUnread = 0xff;  // what a kernel must not read is NaN

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

// What is checked of an operator, on a device.
template <class Problem>
class Checked {
 public:
  using Harness = HarnessOf<Problem>;
  using Operator = typename Harness::Operator;

  // What a configuration does in large launches only, as heads that share blocks: every other
  // small one is made to, on a GPU without multiprocessors.
  static constexpr int kOtherSms = 0;

  Checked(std::shared_ptr<const Device> device, const Problem& problem)
      : device_(device),
        check_(std::move(device), small_problem(Harness::reference(problem)),
               Harness::steps(problem)),
        problem_(problem) {
    problem_.heads = check_.problem().heads;
    if constexpr (requires { problem_.checkpoint_every; }) {
      problem_.checkpoint_every = check_.problem().checkpoint_every;
    }
  }

  const Problem& problem() const { return problem_; }

  Result<Check> run(const std::vector<Operator>& operators, const Values& values) {
    const int chunk_size = chunk_size_of(values);
    Result<DeviceMemory> workspace = DeviceMemory::allocate(
        device_,
        Harness::workspace_bytes(operators.front(), check_lengths(check_.problem(), chunk_size)));
    if (!workspace) return std::move(workspace).error();
    return check_.run(chunk_size,
                      [&](Stream stream, const GdnArgs& args, std::size_t number) -> Status {
                        if (workspace->bytes() > 0)
                          CUBINERY_RETURN_IF_ERROR(workspace->set(kUnread));
                        return Harness::launch(operators[number % operators.size()], stream, args,
                                               {workspace->data(), workspace->bytes()});
                      });
  }

 private:
  std::shared_ptr<const Device> device_;
  GdnCheck check_;
  Problem problem_;
};

template <>
class Checked<gdn::ConvProblem> {
 public:
  // Runs are as short as they get where a launch does not fill the GPU, and long where it does: as
  // on one of a single multiprocessor.
  static constexpr int kOtherSms = 1;

  Checked(std::shared_ptr<const Device> device, const gdn::ConvProblem& problem)
      : check_(std::move(device), small_problem(problem)) {}

  const gdn::ConvProblem& problem() const { return check_.problem(); }

  Result<Check> run(const std::vector<gdn::Conv>& operators, const Values&) {
    std::vector<ConvCheck::Launch> launches;
    launches.reserve(operators.size());
    for (const gdn::Conv& conv : operators) {
      launches.push_back(
          [&conv](Stream stream, const gdn::ConvArgs& args) { return conv.launch(stream, args); });
    }
    return check_.run(launches);
  }

 private:
  ConvCheck check_;
};

template <class Problem>
class OperatorTunable final : public Tunable {
 public:
  using Harness = HarnessOf<Problem>;
  using Operator = typename Harness::Operator;

  OperatorTunable(const Context& context, const Planner<Problem>& planner, const Problem& problem,
                  const Target& target, std::int64_t l2_bytes)
      : context_(context),
        problem_(problem),
        target_(target),
        l2_bytes_(l2_bytes),
        space_(planner.space()) {}

  const TuningSpace& space() const override { return space_; }

  Shape features(const Shape& shape) const override { return gdn_features(problem_, shape); }

  std::size_t default_configuration(const Shape& shape) const override {
    const auto made = gdn_shape(problem_, shape);
    const Problem& problem = made ? made->problem : problem_;
    const auto planner = Planner<Problem>::create(problem, target_, path_options(context_));
    if (!planner) return space_.configurations.size();
    const Point at = made ? point_of(*made) : Point{1, 1, 1};
    return index_of(space_, planner->plan(nullptr).candidate(at).values());
  }

  Status prepare(std::size_t configuration) override {
    Result<Operator> made = Harness::create(context_, problem_, target_, values(configuration));
    return made ? Status() : std::move(made).error();
  }

  Result<Check> check(std::size_t configuration) override {
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    if (!checked_) checked_.emplace(*device, problem_);
    Target other = target_;
    other.sm_count = Checked<Problem>::kOtherSms;
    std::vector<Operator> operators;
    for (const Target& target : {target_, other}) {
      Result<Operator> made =
          Harness::create(context_, checked_->problem(), target, values(configuration));
      if (!made) return std::move(made).error();
      operators.push_back(*std::move(made));
    }
    return checked_->run(operators, values(configuration));
  }

  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override {
    auto made = gdn_shape(problem_, shape);
    if (!made) return std::move(made).error();
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    auto operands = Reference::create(
        *device, Harness::reference(made->problem),
        {.lengths = made->lengths,
         .channels = made->channels,
         .parents = Harness::steps(made->problem).parents,
         .workspace_bytes = Harness::most_workspace_bytes(made->problem, target_, made->lengths),
         .l2_bytes = l2_bytes_,
         .separate_out = Harness::separate_out(made->problem)});
    if (!operands) return std::move(operands).error();
    return std::unique_ptr<Workload>(std::make_unique<GdnWorkload<Operator, Reference>>(
        *std::move(operands), [this, problem = made->problem](std::size_t configuration) {
          return Harness::create(context_, problem, target_, values(configuration));
        }));
  }

 private:
  // Operands of those that look as a prefill, or of the convolution's own.
  using Reference =
      std::conditional_t<std::is_same_v<Problem, gdn::ConvProblem>, ConvOperands, GdnOperands>;

  const Values& values(std::size_t configuration) const {
    return space_.configurations[configuration].values;
  }

  Context context_;
  Problem problem_;
  Target target_;
  std::int64_t l2_bytes_;
  TuningSpace space_;
  std::optional<Checked<Problem>> checked_;
};

template <class Problem>
Result<std::unique_ptr<Tunable>> make(const Context& context, const Problem& problem) {
  const Target target = target_of(context);
  const auto planner = Planner<Problem>::create(problem, target, path_options(context));
  if (!planner) return planner.error().clone();
  const Result<GpuIdentity> gpu = gpu_identity(context);
  return std::unique_ptr<Tunable>(std::make_unique<OperatorTunable<Problem>>(
      context, *planner, problem, target, gpu ? gpu->l2_bytes : 0));
}

}  // namespace

Result<std::unique_ptr<Tunable>> make_tunable(const Context& context, const Problem& problem) {
  return std::visit([&](const auto& one) { return make(context, one); }, problem);
}

}  // namespace cubinery
