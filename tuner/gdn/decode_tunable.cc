#include <algorithm>
#include <optional>
#include <utility>

#include "gdn_decode/fields.h"
#include "runtime/gdn/decode_plan.h"
#include "runtime/gdn/decode_state.h"
#include "runtime/operator/tuned_operator.h"
#include "tuner/gdn/gdn_check.h"
#include "tuner/gdn/gdn_shapes.h"
#include "tuner/gdn/gdn_tunables.h"
#include "tuner/gdn/gdn_workload.h"

namespace cubinery {
namespace {

using gdn::DecodeProblem;

constexpr int kTokenByToken = 0;  // as GdnCase::chunk_size

class DecodeTunable final : public Tunable {
 public:
  DecodeTunable(const Context& context, const DecodeProblem& problem, const GpuRates& rates,
                std::int64_t l2_bytes)
      : context_(context),
        problem_(problem),
        rates_(rates),
        l2_bytes_(l2_bytes),
        space_(gdn::decode_space(problem)) {}

  const TuningSpace& space() const override { return space_; }

  Shape features(const Shape& shape) const override {
    const Result<DecodeShape> made = decode_shape(problem_, shape);
    return made ? gdn::decode_features(made->problem, made->batch) : shape;
  }

  std::size_t default_configuration(const Shape& shape) const override {
    const Result<DecodeShape> made = decode_shape(problem_, shape);
    const DecodeProblem& problem = made ? made->problem : problem_;
    const std::int64_t states = (made ? made->batch : 1) * problem.heads();
    const gdn::DecodePlan plan = gdn::decode_plan(problem, rates_, nullptr);
    return index_of(space_, gdn::decode_values(plan.key(states)));
  }

  Status prepare(std::size_t configuration) override {
    Result<gdn::Decode> decode = create(problem_, configuration);
    return decode ? Status() : std::move(decode).error();
  }

  Result<Check> check(std::size_t configuration) override {
    if (!check_) {
      Result<std::shared_ptr<const Device>> device = device_of(context_);
      if (!device) return std::move(device).error();
      check_.emplace(std::move(*device), small_problem(as_prefill(problem_)));
    }
    DecodeProblem small = problem_;
    small.q_heads = check_->problem().q_heads;
    small.k_heads = check_->problem().k_heads;
    small.v_heads = check_->problem().v_heads;
    Result<gdn::Decode> decode = create(small, configuration);
    if (!decode) return std::move(decode).error();
    return check_->run(kTokenByToken,
                       [&](Stream stream, const gdn::PrefillArgs& args, std::size_t) {
                         return decode->launch(stream, as_decode(args));
                       });
  }

  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override {
    Result<DecodeShape> made = decode_shape(problem_, shape);
    if (!made) return std::move(made).error();
    Result<std::shared_ptr<const Device>> device = device_of(context_);
    if (!device) return std::move(device).error();
    Result<GdnOperands> operands = GdnOperands::create(
        *device, as_prefill(made->problem),
        {.lengths = std::vector<std::int64_t>(idx(made->batch), 1), .l2_bytes = l2_bytes_});
    if (!operands) return std::move(operands).error();
    return std::unique_ptr<Workload>(std::make_unique<GdnWorkload<gdn::Decode>>(
        std::move(*operands), [this, problem = made->problem](std::size_t configuration) {
          return create(problem, configuration);
        }));
  }

 private:
  // `problem`: problem_ with any number of heads.
  Result<gdn::Decode> create(const DecodeProblem& problem, std::size_t configuration) const {
    const std::optional<GdnDecodeKey> key =
        gdn::decode_key(problem, space_.configurations[configuration].values);
    if (!key) return Status(Code::kInvalidKey, "gdn_decode: not a configuration of the problem");
    return gdn::create_decode(context_, problem, *key);
  }

  Context context_;
  DecodeProblem problem_;
  GpuRates rates_;
  std::int64_t l2_bytes_;
  TuningSpace space_;
  std::optional<GdnCheck> check_;
};

}  // namespace

Result<std::unique_ptr<Tunable>> make_tunable(const Context& context,
                                              const DecodeProblem& problem) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  const Arch arch = arch_of(context);
  const Result<GpuIdentity> gpu = gpu_identity(context);
  return std::unique_ptr<Tunable>(std::make_unique<DecodeTunable>(
      context, problem, gpu ? rates_of(arch, *gpu) : nominal_rates(arch), gpu ? gpu->l2_bytes : 0));
}

}  // namespace cubinery
