// The decode operator: checks arguments, fills parameters, launches.
#include <fmt/format.h>

#include <array>
#include <limits>

#include "cubinery/gdn_decode.h"
#include "gdn_decode/fields.h"
#include "runtime/args_binding.h"
#include "runtime/decode_state.h"
#include "runtime/get_kernels.h"
#include "runtime/problem_check.h"

namespace cubinery::gdn {
namespace {

constexpr std::string_view kOp = Fields<DecodeProblem>::kName;

// Batches with fewer value columns (of all heads) than this per multiprocessor run the narrow
// kernel.
constexpr std::int64_t kWideColumnsPerSm = 128;

// The tensors of one launch against one problem; fills a GdnDecodeParams.
class Binder {
 public:
  Binder(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch)
      : problem_(problem), args_(args), batch_{"B", batch}, heads_{"heads", problem.heads()} {}

  Status bind() {
    CUBINERY_RETURN_IF_ERROR(bind_rows());
    CUBINERY_RETURN_IF_ERROR(bind_gates());
    CUBINERY_RETURN_IF_ERROR(bind_states(problem_, args_, batch_, &p_));
    CUBINERY_RETURN_IF_ERROR(
        bind_slots(problem_, args_, batch_, &p_, &p_.read_slots_request, &p_.write_slots_request));
    CUBINERY_RETURN_IF_ERROR(bind_scale(kOp, args_.scale, problem_.key_dim, &p_.scale));
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
    return check_no_overlap({kOp, "o"}, args_.o);
  }

  // [B, heads, dim] with unit innermost stride.
  Status check_rows(std::string_view tensor, const Tensor& x, DType dtype, Dim heads, Dim dim,
                    long long* request_stride, long long* head_stride) const {
    const TensorName name{kOp, tensor};
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
    const TensorName name{kOp, tensor};
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
  return create_decode(context, problem, decode_keys(problem));
}

Result<Decode> create_decode(const Context& context, const DecodeProblem& problem,
                             const DecodeKeys& keys) {
  std::vector<KernelSpec> specs;
  CUBINERY_RETURN_IF_ERROR(add_spec(keys.wide, &specs));
  CUBINERY_RETURN_IF_ERROR(add_spec(keys.narrow, &specs));
  Result<std::vector<Kernel>> kernels = get_kernels(context, specs);
  if (!kernels) return std::move(kernels).error();
  const std::int64_t columns = std::int64_t{problem.heads()} * problem.value_dim;  // of a request
  const std::int64_t wide_from = (kWideColumnsPerSm * context.sm_count() + columns - 1) / columns;
  return Decode(std::make_shared<const Decode::State>(
      Decode::State{.problem = problem,
                    .wide = {.key = keys.wide, .kernel = kernels->front()},
                    .narrow = {.key = keys.narrow, .kernel = kernels->back()},
                    .wide_from_batch = wide_from}));
}

const DecodeProblem& Decode::problem() const { return state_->problem; }

const Kernel& Decode::kernel(std::int64_t batch) const { return state_->variant(batch).kernel; }

Status Decode::launch(Stream stream, const DecodeArgs& args) const {
  const std::int64_t batch = args.q.rank > 0 ? args.q.shape[0] : -1;
  const State::Variant& variant = state_->variant(batch);
  const std::int64_t max_batch =
      std::numeric_limits<int>::max() / 2 / variant.warps(1, state_->problem.heads());
  if (batch < 0 || batch > max_batch) {
    return invalid({kOp, "q"}, fmt::format("has B = {}; accepted: 0 to {}", batch, max_batch));
  }
  if (batch == 0) return {};
  Binder binder(state_->problem, args, batch);
  CUBINERY_RETURN_IF_ERROR(binder.bind());
  const std::int64_t warps = variant.warps(batch, state_->problem.heads());
  const std::int64_t blocks = (warps + variant.key.warps - 1) / variant.key.warps;
  return variant.kernel.launch(
      stream, {.grid_x = static_cast<unsigned>(blocks), .programmatic = args.programmatic},
      binder.params());
}

}  // namespace cubinery::gdn
