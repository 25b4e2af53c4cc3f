// The decode operator: checks arguments, fills parameters, launches.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "cubinery/gdn_decode.h"
#include "gdn_decode/fields.h"
#include "runtime/args_binding.h"
#include "runtime/decode_problem.h"
#include "runtime/decode_state.h"
#include "runtime/get_kernels.h"
#include "runtime/problem_check.h"
#include "runtime/tuned_operator.h"

namespace cubinery::gdn {
namespace {

// Warps that some requests need.
std::int64_t warps_of(const GdnDecodeKey& key, std::int64_t requests, int heads) {
  return requests * heads * (key.value_dim / key.warp_v);
}

Result<Decode> load(const Context& context, const DecodeProblem& problem, DecodePlan plan) {
  std::vector<KernelSpec> specs;
  for (const GdnDecodeKey& key : plan.keys) CUBINERY_RETURN_IF_ERROR(add_spec(key, &specs));
  Result<std::vector<Kernel>> kernels = get_kernels(context, specs);
  if (!kernels) return std::move(kernels).error();
  return Decode(std::make_shared<const Decode::State>(
      Decode::State{.problem = problem, .plan = std::move(plan), .kernels = *std::move(kernels)}));
}

// The tensors of one launch against one problem; fills a GdnDecodeParams.
class DecodeBinder {
 public:
  DecodeBinder(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch)
      : problem_(problem), args_(args), batch_{"B", batch}, heads_{"heads", problem.heads()} {}

  Status bind() {
    CUBINERY_RETURN_IF_ERROR(bind_rows());
    CUBINERY_RETURN_IF_ERROR(bind_gates());
    CUBINERY_RETURN_IF_ERROR(bind_states(problem_, args_, batch_, &p_));
    CUBINERY_RETURN_IF_ERROR(
        bind_slots(problem_, args_, batch_, &p_, &p_.read_slots_request, &p_.write_slots_request));
    CUBINERY_RETURN_IF_ERROR(bind_scale(kDecodeOp, args_.scale, problem_.key_dim, &p_.scale));
    const int heads = problem_.heads();
    p_.requests = static_cast<int>(batch_.extent);
    p_.heads = heads;
    p_.q_group = heads / problem_.q_heads;
    p_.k_group = heads / problem_.k_heads;
    p_.v_group = heads / problem_.v_heads;
    return {};
  }

  const GdnDecodeParams& params() const { return p_; }

 private:
  Status bind_rows() {
    const Dim key_dim{"key_dim", problem_.key_dim};
    const Dim value_dim{"value_dim", problem_.value_dim};
    const DType dtype = problem_.dtype;
    CUBINERY_RETURN_IF_ERROR(check_rows("q", args_.q, dtype, {"q_heads", problem_.q_heads}, key_dim,
                                        &p_.q_request, &p_.q_head));
    CUBINERY_RETURN_IF_ERROR(check_rows("k", args_.k, dtype, {"k_heads", problem_.k_heads}, key_dim,
                                        &p_.k_request, &p_.k_head));
    CUBINERY_RETURN_IF_ERROR(check_rows("v", args_.v, dtype, {"v_heads", problem_.v_heads},
                                        value_dim, &p_.v_request, &p_.v_head));
    CUBINERY_RETURN_IF_ERROR(check_rows("o", args_.o, problem_.output_dtype, heads_, value_dim,
                                        &p_.o_request, &p_.o_head));
    p_.q = args_.q.data;
    p_.k = args_.k.data;
    p_.v = args_.v.data;
    p_.o = args_.o.data;
    return check_no_overlap({kDecodeOp, "o"}, args_.o);
  }

  // [B, heads, dim] with unit innermost stride.
  Status check_rows(std::string_view tensor, const Tensor& x, DType dtype, Dim heads, Dim dim,
                    long long* request_stride, long long* head_stride) const {
    const TensorName name{kDecodeOp, tensor};
    std::array<std::int64_t, 3> strides{};
    CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
    CUBINERY_RETURN_IF_ERROR(
        check_shape(name, x, {batch_, heads, dim}, ExtraDim::kSecond, strides.data()));
    *request_stride = strides[0];
    *head_stride = strides[1];
    return check_innermost(name, strides[2]);
  }

  Status bind_gates() {
    if (problem_.gate_mode != GateMode::kNone) {
      CUBINERY_RETURN_IF_ERROR(
          bind_per_head("g", args_.g, problem_.gate_dtype, &p_.g, &p_.g_request, &p_.g_head));
    }
    if (problem_.beta_mode != BetaMode::kOne) {
      CUBINERY_RETURN_IF_ERROR(bind_per_head("beta", args_.beta, problem_.beta_dtype, &p_.beta,
                                             &p_.beta_request, &p_.beta_head));
    }
    return bind_gate_vectors(problem_, args_, &p_);
  }

  // [B, heads], any strides.
  Status bind_per_head(std::string_view tensor, const Tensor& x, DType dtype, const void** data,
                       long long* request_stride, long long* head_stride) const {
    const TensorName name{kDecodeOp, tensor};
    std::array<std::int64_t, 2> strides{};
    CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
    CUBINERY_RETURN_IF_ERROR(
        check_shape(name, x, {batch_, heads_}, ExtraDim::kSecond, strides.data()));
    *data = x.data;
    *request_stride = strides[0];
    *head_stride = strides[1];
    return {};
  }

  const DecodeProblem& problem_;
  const DecodeArgs& args_;
  const Dim batch_;
  const Dim heads_;
  GdnDecodeParams p_{};
};

}  // namespace

Result<Decode> Decode::create(const Context& context, const DecodeProblem& problem) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  const TuningKnowledge known = tuning_knowledge(context, decode_question(problem, {}, {}));
  const Answers answers(decode_question(problem, known.gpu, known.toolchain), known.results);
  return create_tuned<Decode>(
      context, kDecodeOp, answers,
      [&](const Answers* asked, std::string_view why_not) {
        return decode_plan(problem, known.rates, asked, why_not);
      },
      [&](DecodePlan plan) { return load(context, problem, std::move(plan)); });
}

Result<Decode> create_decode(const Context& context, const DecodeProblem& problem,
                             const GdnDecodeKey& key) {
  return load(context, problem, decode_plan(key));
}

const DecodePlan::Cell& Decode::State::cell(std::int64_t batch) const {
  const auto limit = std::int64_t{std::numeric_limits<int>::max()};
  return plan.cell(std::min(batch, limit) * problem.heads());
}

const DecodeProblem& Decode::problem() const { return state_->problem; }

const Kernel& Decode::kernel(std::int64_t batch) const {
  return state_->kernels[state_->cell(batch).key];
}

Chosen Decode::choice(std::int64_t batch) const { return state_->cell(batch).chosen; }

Status Decode::launch(Stream stream, const DecodeArgs& args) const {
  const std::int64_t batch = args.q.rank > 0 ? args.q.shape[0] : -1;
  const std::size_t variant = state_->cell(batch).key;
  const GdnDecodeKey& key = state_->plan.keys[variant];
  const int heads = state_->problem.heads();
  const std::int64_t max_batch = std::numeric_limits<int>::max() / 2 / warps_of(key, 1, heads);
  if (batch < 0 || batch > max_batch) {
    return invalid({kDecodeOp, "q"},
                   fmt::format("has B = {}; accepted: 0 to {}", batch, max_batch));
  }
  if (batch == 0) return {};
  DecodeBinder binder(state_->problem, args, batch);
  CUBINERY_RETURN_IF_ERROR(binder.bind());
  const std::int64_t blocks = (warps_of(key, batch, heads) + key.warps - 1) / key.warps;
  return state_->kernels[variant].launch(
      stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = args.programmatic},
      binder.params());
}

}  // namespace cubinery::gdn
