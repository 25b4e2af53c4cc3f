#include <algorithm>
#include <optional>
#include <utility>

#include "codegen/arch.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/prefill_plan.h"
#include "runtime/gdn/prefill_state.h"
#include "runtime/operator/tuned_operator.h"
#include "tuner/gdn/gdn_check.h"
#include "tuner/gdn/gdn_shapes.h"
#include "tuner/gdn/gdn_tunables.h"
#include "tuner/gdn/gdn_workload.h"

namespace cubinery {
namespace {

using gdn::PrefillPair;
using gdn::PrefillProblem;
using gdn::PrefillSize;

PrefillSize size_of(const std::vector<std::int64_t>& lengths) {
  return {.tokens = GdnExtent{.lengths = lengths}.tokens(),
          .sequences = static_cast<std::int64_t>(lengths.size()),
          .max_seqlen = *std::max_element(lengths.begin(), lengths.end())};
}

class PrefillTunable final : public Tunable {
 public:
  PrefillTunable(const Context& context, const PrefillProblem& problem, int shared_limit,
                 const GpuRates& rates, std::int64_t l2_bytes)
      : context_(context),
        problem_(problem),
        shared_limit_(shared_limit),
        rates_(rates),
        l2_bytes_(l2_bytes),
        space_(gdn::prefill_space(problem, shared_limit)) {}

  const TuningSpace& space() const override { return space_; }

  Shape features(const Shape& shape) const override {
    const Result<PrefillShape> made = prefill_shape(problem_, shape);
    return made ? gdn::prefill_features(made->problem, size_of(made->lengths)) : shape;
  }

  std::size_t default_configuration(const Shape& shape) const override {
    const Result<PrefillShape> made = prefill_shape(problem_, shape);
    const gdn::PrefillPlan plan =
        gdn::prefill_plan(made ? made->problem : problem_, shared_limit_, rates_, nullptr);
    const PrefillSize size = made ? size_of(made->lengths) : PrefillSize{};
    return index_of(space_, gdn::prefill_values(plan.pair(size)));
  }

  Status prepare(std::size_t configuration) override {
    Result<gdn::Prefill> prefill = create(problem_, configuration);
    return prefill ? Status() : std::move(prefill).error();
  }

  Result<Check> check(std::size_t configuration) override {
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    if (!check_) check_.emplace(*device, small_problem(problem_));
    // Heads share blocks in large launches only: every other small one is made to.
    std::vector<gdn::Prefill> prefills;
    for (const bool always_share : {false, true}) {
      Result<gdn::Prefill> prefill = create(check_->problem(), configuration, always_share);
      if (!prefill) return std::move(prefill).error();
      prefills.push_back(std::move(*prefill));
    }
    const int chunk_size = pair(check_->problem(), configuration)->chunks.chunk_size;
    Result<DeviceMemory> workspace =
        DeviceMemory::allocate(*device, prefills.front().workspace_bytes(check_->size(chunk_size)));
    if (!workspace) return std::move(workspace).error();
    return check_->run(
        chunk_size, [&](Stream stream, const gdn::PrefillArgs& args, std::size_t number) -> Status {
          CUBINERY_RETURN_IF_ERROR(workspace->set(kPoison));
          return prefills[number % 2].launch(
              stream, args, {.data = workspace->data(), .bytes = workspace->bytes()});
        });
  }

  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override {
    Result<PrefillShape> made = prefill_shape(problem_, shape);
    if (!made) return std::move(made).error();
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    const std::size_t workspace = most_workspace_bytes(made->problem, size_of(made->lengths));
    const bool dense = problem_.state_location == gdn::StateLocation::kDense;
    Result<GdnOperands> operands = GdnOperands::create(*device, made->problem,
                                                       {.lengths = std::move(made->lengths),
                                                        .workspace_bytes = workspace,
                                                        .l2_bytes = l2_bytes_,
                                                        .separate_out = dense});
    if (!operands) return std::move(operands).error();
    return std::unique_ptr<Workload>(std::make_unique<GdnWorkload<gdn::Prefill>>(
        std::move(*operands), [this, problem = made->problem](std::size_t configuration) {
          return create(problem, configuration);
        }));
  }

 private:
  static constexpr unsigned char kPoison = 0xff;  // what a kernel must not read is NaN

  std::optional<PrefillPair> pair(const PrefillProblem& problem, std::size_t configuration) const {
    return gdn::prefill_pair(problem, space_.configurations[configuration].values, shared_limit_);
  }

  // `problem`: problem_ with any number of heads.
  Result<gdn::Prefill> create(const PrefillProblem& problem, std::size_t configuration,
                              bool always_share = false) const {
    const std::optional<PrefillPair> keys = pair(problem, configuration);
    if (!keys) return Status(Code::kInvalidKey, "gdn_prefill: not a configuration of the problem");
    return gdn::create_prefill(context_, problem, *keys, always_share);
  }

  Context context_;
  PrefillProblem problem_;
  int shared_limit_;
  GpuRates rates_;
  std::int64_t l2_bytes_;
  TuningSpace space_;
  std::optional<GdnCheck> check_;
};

}  // namespace

Result<std::unique_ptr<Tunable>> make_tunable(const Context& context,
                                              const PrefillProblem& problem) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  const Arch arch = arch_of(context);
  const Result<GpuIdentity> gpu = gpu_identity(context);
  return std::unique_ptr<Tunable>(std::make_unique<PrefillTunable>(
      context, problem, max_shared_bytes(arch), gpu ? rates_of(arch, *gpu) : nominal_rates(arch),
      gpu ? gpu->l2_bytes : 0));
}

}  // namespace cubinery
