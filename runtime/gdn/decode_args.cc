#include "runtime/gdn/decode_args.h"

#include <array>
#include <string_view>

#include "runtime/gdn/args_binding.h"
#include "runtime/gdn/decode_problem.h"

namespace cubinery::gdn {
namespace {

class DecodeBinder {
 public:
  DecodeBinder(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch,
               GdnDecodeParams* params)
      : problem_(problem),
        args_(args),
        batch_{"B", batch},
        heads_{"heads", problem.heads()},
        p_(*params) {}

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
  GdnDecodeParams& p_;
};

}  // namespace

Status bind_decode(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch,
                   GdnDecodeParams* params) {
  return DecodeBinder(problem, args, batch, params).bind();
}

}  // namespace cubinery::gdn
