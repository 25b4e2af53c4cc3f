// The decode operator: checks arguments, fills parameters, launches.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "cubinery/gdn.h"
#include "gdn_decode/fields.h"
#include "runtime/decode_state.h"
#include "runtime/tensor_check.h"

namespace cubinery::gdn {
namespace {

constexpr std::string_view kOp = "gdn_decode";

// State matrices are read and written in vectors of up to 16 bytes.
constexpr std::int64_t kStateAlignment = 16;

// Batches with fewer value columns (of all heads) than this per multiprocessor run the narrow
// kernel.
constexpr std::int64_t kWideColumnsPerSm = 128;

// [B, heads, dim] with unit innermost stride.
Status check_rows(std::string_view tensor, const Tensor& x, DType dtype, std::int64_t batch,
                  Dim heads, Dim dim, long long* request_stride, long long* head_stride) {
  const TensorName name{kOp, tensor};
  std::array<std::int64_t, 3> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
  CUBINERY_RETURN_IF_ERROR(check_shape(name, x, {{"B", batch}, heads, dim}, true, strides.data()));
  if (strides[2] != 1) {
    return invalid(name, fmt::format("has innermost stride {}; accepted: 1", strides[2]));
  }
  *request_stride = strides[0];
  *head_stride = strides[1];
  return {};
}

Status check_absent(std::string_view tensor, const Tensor& x, std::string_view why) {
  if (!x.present()) return {};
  return invalid({kOp, tensor}, fmt::format("is given; accepted: no tensor, {}", why));
}

// The tensors of one launch against one problem; fills a GdnDecodeParams.
class Binder {
 public:
  Binder(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch)
      : problem_(problem), args_(args), batch_(batch), heads_{"heads", problem.heads()} {}

  Status bind() {
    CUBINERY_RETURN_IF_ERROR(bind_rows());
    CUBINERY_RETURN_IF_ERROR(bind_gates());
    CUBINERY_RETURN_IF_ERROR(bind_states());
    CUBINERY_RETURN_IF_ERROR(bind_indices());
    return bind_scalars();
  }

  const GdnDecodeParams& params() const { return p_; }

 private:
  Status bind_rows() {
    const Dim key_dim{"key_dim", problem_.key_dim};
    const Dim value_dim{"value_dim", problem_.value_dim};
    const DType dtype = problem_.dtype;
    CUBINERY_RETURN_IF_ERROR(check_rows("q", args_.q, dtype, batch_, {"q_heads", problem_.q_heads},
                                        key_dim, &p_.q_request, &p_.q_head));
    CUBINERY_RETURN_IF_ERROR(check_rows("k", args_.k, dtype, batch_, {"k_heads", problem_.k_heads},
                                        key_dim, &p_.k_request, &p_.k_head));
    CUBINERY_RETURN_IF_ERROR(check_rows("v", args_.v, dtype, batch_, {"v_heads", problem_.v_heads},
                                        value_dim, &p_.v_request, &p_.v_head));
    CUBINERY_RETURN_IF_ERROR(check_rows("o", args_.o, problem_.output_dtype, batch_, heads_,
                                        value_dim, &p_.o_request, &p_.o_head));
    CUBINERY_RETURN_IF_ERROR(check_distinct("o", p_.o_request, batch_));
    CUBINERY_RETURN_IF_ERROR(check_distinct("o", p_.o_head, heads_.extent));
    p_.q = args_.q.data;
    p_.k = args_.k.data;
    p_.v = args_.v.data;
    p_.o = args_.o.data;
    return {};
  }

  // A written dimension must not fold onto itself.
  static Status check_distinct(std::string_view tensor, long long stride, std::int64_t extent) {
    if (stride != 0 || extent <= 1) return {};
    return invalid({kOp, tensor},
                   "has stride 0 in a dimension that is written; accepted: no overlap");
  }

  // [B, heads], any strides.
  Status bind_per_head(std::string_view tensor, const Tensor& x, DType dtype, const void** data,
                       long long* request_stride, long long* head_stride) {
    std::array<std::int64_t, 2> strides{};
    CUBINERY_RETURN_IF_ERROR(check_data({kOp, tensor}, x, dtype));
    CUBINERY_RETURN_IF_ERROR(
        check_shape({kOp, tensor}, x, {{"B", batch_}, heads_}, true, strides.data()));
    *data = x.data;
    *request_stride = strides[0];
    *head_stride = strides[1];
    return {};
  }

  // [heads], any stride.
  Status bind_vector(std::string_view tensor, const Tensor& x, DType dtype, Dim dim,
                     const void** data, long long* stride) {
    std::int64_t found = 0;
    CUBINERY_RETURN_IF_ERROR(check_data({kOp, tensor}, x, dtype));
    CUBINERY_RETURN_IF_ERROR(check_shape({kOp, tensor}, x, {dim}, false, &found));
    *data = x.data;
    *stride = found;
    return {};
  }

  Status bind_gates() {
    if (problem_.gate_mode == GateMode::kNone) {
      CUBINERY_RETURN_IF_ERROR(check_absent("g", args_.g, "gate_mode is none"));
    } else {
      CUBINERY_RETURN_IF_ERROR(
          bind_per_head("g", args_.g, problem_.gate_dtype, &p_.g, &p_.g_request, &p_.g_head));
    }
    if (problem_.gate_mode == GateMode::kComputed) {
      CUBINERY_RETURN_IF_ERROR(bind_vector("A_log", args_.A_log, problem_.a_log_dtype, heads_,
                                           &p_.A_log, &p_.A_log_head));
      CUBINERY_RETURN_IF_ERROR(bind_vector("dt_bias", args_.dt_bias, problem_.dt_bias_dtype, heads_,
                                           &p_.dt_bias, &p_.dt_bias_head));
    } else {
      CUBINERY_RETURN_IF_ERROR(check_absent("A_log", args_.A_log, "gate_mode is not computed"));
      CUBINERY_RETURN_IF_ERROR(check_absent("dt_bias", args_.dt_bias, "gate_mode is not computed"));
    }
    if (problem_.beta_mode == BetaMode::kOne) {
      return check_absent("beta", args_.beta, "beta_mode is one");
    }
    return bind_per_head("beta", args_.beta, problem_.beta_dtype, &p_.beta, &p_.beta_request,
                         &p_.beta_head);
  }

  Status bind_states() {
    const bool reads = problem_.has_initial_state;
    const bool writes = problem_.store_state;
    const Tensor& written = args_.state_out.present() ? args_.state_out : args_.state;
    if (!writes) {
      CUBINERY_RETURN_IF_ERROR(check_absent("state_out", args_.state_out, "store_state is false"));
    }
    if (reads) {
      CUBINERY_RETURN_IF_ERROR(
          check_state("state", args_.state, &p_.state_slot, &p_.state_head, &p_.slots));
      p_.state = args_.state.data;
    }
    if (writes) {
      CUBINERY_RETURN_IF_ERROR(check_state(args_.state_out.present() ? "state_out" : "state",
                                           written, &p_.state_out_slot, &p_.state_out_head,
                                           &p_.state_out_slots));
      p_.state_out = written.data;
    }
    // Without one of the two, its indices are held to the range of the other.
    if (!reads) p_.slots = writes ? p_.state_out_slots : std::numeric_limits<long long>::max();
    if (!writes) p_.state_out_slots = p_.slots;
    return {};
  }

  // [B or slots, heads, rows, columns] as DecodeArgs::state describes it.
  Status check_state(std::string_view tensor, const Tensor& x, long long* slot_stride,
                     long long* head_stride, long long* slots) {
    const TensorName name{kOp, tensor};
    const bool kv = problem_.state_layout == StateLayout::kKV;
    const Dim rows = kv ? Dim{"key_dim", problem_.key_dim} : Dim{"value_dim", problem_.value_dim};
    const Dim columns =
        kv ? Dim{"value_dim", problem_.value_dim} : Dim{"key_dim", problem_.key_dim};
    const bool pool = problem_.state_location == StateLocation::kPool;
    const Dim outer = pool ? Dim{"slots", x.shape[0]} : Dim{"B", batch_};
    std::array<std::int64_t, 4> strides{};
    CUBINERY_RETURN_IF_ERROR(check_data(name, x, problem_.state_dtype));
    CUBINERY_RETURN_IF_ERROR(
        check_shape(name, x, {outer, heads_, rows, columns}, false, strides.data()));
    if (reinterpret_cast<std::uintptr_t>(x.data) % kStateAlignment != 0) {
      return invalid(name, fmt::format("at {} is misaligned; accepted: a multiple of {} bytes",
                                       fmt::ptr(x.data), kStateAlignment));
    }
    if (strides[3] != 1 || strides[2] != columns.extent) {
      return invalid(name,
                     fmt::format("has strides {}, {} in its matrices; accepted: {}, 1 (no gaps)",
                                 strides[2], strides[3], columns.extent));
    }
    const std::int64_t matrix = rows.extent * columns.extent;
    CUBINERY_RETURN_IF_ERROR(check_gap(name, "head", strides[1], heads_.extent, matrix));
    CUBINERY_RETURN_IF_ERROR(check_gap(name, outer.name, strides[0], outer.extent, matrix));
    *slot_stride = strides[0];
    *head_stride = strides[1];
    *slots = outer.extent;
    return {};
  }

  // Whole vectors between matrices, and no matrix on top of another.
  Status check_gap(TensorName name, std::string_view dim, std::int64_t stride, std::int64_t extent,
                   std::int64_t matrix) const {
    const std::int64_t unit = kStateAlignment / size_of(problem_.state_dtype);
    if (extent <= 1 || (stride % unit == 0 && stride >= matrix)) return {};
    return invalid(name, fmt::format("has {} stride {}; accepted: multiples of {} from {} up", dim,
                                     stride, unit, matrix));
  }

  Status bind_indices() {
    if (problem_.state_location == StateLocation::kDense) {
      constexpr std::string_view kWhy = "state_location is dense";
      CUBINERY_RETURN_IF_ERROR(check_absent("state_indices", args_.state_indices, kWhy));
      return check_absent("state_out_indices", args_.state_out_indices, kWhy);
    }
    const Dim batch{"B", batch_};
    CUBINERY_RETURN_IF_ERROR(bind_vector("state_indices", args_.state_indices, problem_.index_dtype,
                                         batch, &p_.read_slots, &p_.read_slots_request));
    p_.write_slots = p_.read_slots;
    p_.write_slots_request = p_.read_slots_request;
    if (!args_.state_out_indices.present()) return {};
    return bind_vector("state_out_indices", args_.state_out_indices, problem_.index_dtype, batch,
                       &p_.write_slots, &p_.write_slots_request);
  }

  Status bind_scalars() {
    const std::int64_t slots = std::min(p_.slots, p_.state_out_slots);
    const bool uses_scratch = problem_.padding == Padding::kScratch;
    if (uses_scratch && (args_.scratch_slot < 0 || args_.scratch_slot >= slots)) {
      return invalid({kOp, "scratch_slot"},
                     fmt::format("is {}; accepted: 0 to {}", args_.scratch_slot, slots - 1));
    }
    if (!uses_scratch && args_.scratch_slot != 0) {
      return invalid({kOp, "scratch_slot"},
                     fmt::format("is {}; accepted: 0, padding is not scratch", args_.scratch_slot));
    }
    p_.scratch_slot = args_.scratch_slot;
    p_.scale = args_.scale.value_or(1.0f / std::sqrt(static_cast<float>(problem_.key_dim)));
    if (!std::isfinite(p_.scale)) {
      return invalid({kOp, "scale"}, fmt::format("is {}; accepted: a finite number", p_.scale));
    }
    const int heads = problem_.heads();
    p_.requests = static_cast<int>(batch_);
    p_.heads = heads;
    p_.q_group = heads / problem_.q_heads;
    p_.k_group = heads / problem_.k_heads;
    p_.v_group = heads / problem_.v_heads;
    return {};
  }

  const DecodeProblem& problem_;
  const DecodeArgs& args_;
  const std::int64_t batch_;
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
  Result<Kernel> wide = context.get(keys.wide);
  if (!wide) return std::move(wide).error();
  Result<Kernel> narrow = context.get(keys.narrow);
  if (!narrow) return std::move(narrow).error();
  const std::int64_t columns = std::int64_t{problem.heads()} * problem.value_dim;  // of a request
  const std::int64_t wide_from = (kWideColumnsPerSm * context.sm_count() + columns - 1) / columns;
  return Decode(std::make_shared<const Decode::State>(
      Decode::State{.problem = problem,
                    .wide = {.key = keys.wide, .kernel = std::move(*wide)},
                    .narrow = {.key = keys.narrow, .kernel = std::move(*narrow)},
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
