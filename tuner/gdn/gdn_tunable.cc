#include "tuner/gdn/gdn_tunable.h"

#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "runtime/gdn/decode_state.h"
#include "runtime/gdn/prefill_state.h"
#include "runtime/operator/tuning_context.h"
#include "tuner/choose/shape.h"
#include "tuner/gdn/gdn_check.h"
#include "tuner/gdn/gdn_shapes.h"
#include "tuner/gdn/gdn_workload.h"
#include "tuner/measure/device_memory.h"

namespace cubinery {
namespace {

using gdn::DecodeProblem;
using gdn::PrefillProblem;
using Values = std::vector<TunedValue>;

// What is different for each operator.

Result<gdn::Decode> create(const Context& context, const DecodeProblem& problem,
                           const Target& target, const Values& values) {
  return create_decode(context, problem, target, values);
}
Result<gdn::Prefill> create(const Context& context, const PrefillProblem& problem,
                            const Target& target, const Values& values) {
  return create_prefill(context, problem, target, values);
}

using cubinery::as_prefill;
const PrefillProblem& as_prefill(const PrefillProblem& problem) { return problem; }

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

std::size_t workspace_bytes(const gdn::Decode&, const gdn::PrefillSize&) { return 0; }
std::size_t workspace_bytes(const gdn::Prefill& prefill, const gdn::PrefillSize& size) {
  return prefill.workspace_bytes(size);
}

Status launch(const gdn::Decode& decode, Stream stream, const gdn::PrefillArgs& args,
              const gdn::Workspace&) {
  return decode.launch(stream, as_decode(args));
}
Status launch(const gdn::Prefill& prefill, Stream stream, const gdn::PrefillArgs& args,
              const gdn::Workspace& workspace) {
  return prefill.launch(stream, args, workspace);
}

template <class Problem>
class GdnTunable final : public Tunable {
 public:
  using Operator = typename Problem::Operator;

  GdnTunable(const Context& context, const Planner<Problem>& planner, const Problem& problem,
             const Target& target, std::int64_t l2_bytes)
      : context_(context),
        problem_(problem),
        target_(target),
        l2_bytes_(l2_bytes),
        space_(planner.space()) {}

  const TuningSpace& space() const override { return space_; }

  Shape features(const Shape& shape) const override {
    const auto made = gdn_shape(problem_, shape);
    return made ? features_at(made->problem, point_of(made->problem, made->size())) : shape;
  }

  std::size_t default_configuration(const Shape& shape) const override {
    const auto made = gdn_shape(problem_, shape);
    const Problem& problem = made ? made->problem : problem_;
    const auto planner = Planner<Problem>::create(problem, target_);
    if (!planner) return space_.configurations.size();
    const Point at = made ? point_of(problem, made->size()) : Point{1, 1, 1};
    return index_of(space_, planner->plan(nullptr).values(at));
  }

  Status prepare(std::size_t configuration) override {
    Result<Operator> made = create(context_, problem_, target_, values(configuration));
    return made ? Status() : std::move(made).error();
  }

  Result<Check> check(std::size_t configuration) override {
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    if (!check_) check_.emplace(*device, small_problem(as_prefill(problem_)));
    Problem small = problem_;
    small.heads.q = check_->problem().heads.q;
    small.heads.k = check_->problem().heads.k;
    small.heads.v = check_->problem().heads.v;
    if constexpr (requires { small.checkpoint_every; }) {
      small.checkpoint_every = check_->problem().checkpoint_every;
    }
    // What a configuration does in large launches only, as heads that share blocks: every other
    // small one is made to, on a GPU without multiprocessors.
    Target no_sms = target_;
    no_sms.sm_count = 0;
    std::vector<Operator> operators;
    for (const Target& target : {target_, no_sms}) {
      Result<Operator> made = create(context_, small, target, values(configuration));
      if (!made) return std::move(made).error();
      operators.push_back(std::move(*made));
    }
    const int chunk_size = chunk_size_of(values(configuration));
    Result<DeviceMemory> workspace = DeviceMemory::allocate(
        *device, workspace_bytes(operators.front(), check_->size(chunk_size)));
    if (!workspace) return std::move(workspace).error();
    return check_->run(
        chunk_size, [&](Stream stream, const gdn::PrefillArgs& args, std::size_t number) -> Status {
          if (workspace->bytes() > 0) CUBINERY_RETURN_IF_ERROR(workspace->set(kPoison));
          return launch(operators[number % operators.size()], stream, args,
                        {workspace->data(), workspace->bytes()});
        });
  }

  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override {
    auto made = gdn_shape(problem_, shape);
    if (!made) return std::move(made).error();
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    const std::size_t workspace = most_workspace_bytes(made->problem, made->size());
    Result<GdnOperands> operands = GdnOperands::create(*device, as_prefill(made->problem),
                                                       {.lengths = made->lengths(),
                                                        .workspace_bytes = workspace,
                                                        .l2_bytes = l2_bytes_,
                                                        .separate_out = made->separate_out()});
    if (!operands) return std::move(operands).error();
    return std::unique_ptr<Workload>(std::make_unique<GdnWorkload<Operator>>(
        std::move(*operands), [this, problem = made->problem](std::size_t configuration) {
          return create(context_, problem, target_, values(configuration));
        }));
  }

 private:
  static constexpr unsigned char kPoison = 0xff;  // what a kernel must not read is NaN

  const Values& values(std::size_t configuration) const {
    return space_.configurations[configuration].values;
  }

  Context context_;
  Problem problem_;
  Target target_;
  std::int64_t l2_bytes_;
  TuningSpace space_;
  std::optional<GdnCheck> check_;
};

template <class Problem>
Result<std::unique_ptr<Tunable>> make(const Context& context, const Problem& problem) {
  const Target target = target_of(context);
  const auto planner = Planner<Problem>::create(problem, target, path_options(context));
  if (!planner) return planner.error().clone();
  const Result<GpuIdentity> gpu = gpu_identity(context);
  return std::unique_ptr<Tunable>(std::make_unique<GdnTunable<Problem>>(
      context, *planner, problem, target, gpu ? gpu->l2_bytes : 0));
}

}  // namespace

Result<std::unique_ptr<Tunable>> make_tunable(const Context& context,
                                              const DecodeProblem& problem) {
  return make(context, problem);
}
Result<std::unique_ptr<Tunable>> make_tunable(const Context& context,
                                              const PrefillProblem& problem) {
  return make(context, problem);
}

}  // namespace cubinery
