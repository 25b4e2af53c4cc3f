#include "runtime/decode_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/arch.h"
#include "gdn_decode/fields.h"

namespace cubinery::gdn {
namespace {

Status bad(std::string_view field, std::string_view value, std::string_view accepted) {
  return Status(Code::kInvalidArgument,
                fmt::format("gdn_decode: {} = {}; accepted: {}", field, value, accepted));
}

template <class T>
std::string text(T value) {
  return internal::field_text("", value, false).value;
}

Status check_dim(std::string_view name, int dim) {
  if (is_head_dim(dim)) return {};
  return bad(name, text(dim), "multiples of 16 from 16 to 256");
}

Status check_heads(std::string_view name, int count, int heads) {
  if (count >= 1 && heads % count == 0) return {};
  return bad(name, text(count),
             fmt::format("a divisor of {}, the largest of q_heads, k_heads and v_heads", heads));
}

Status check_float(std::string_view name, DType dtype) {
  if (is_float(dtype)) return {};
  return bad(name, text(dtype), "f32, bf16, f16");
}

// Rows of the state lie along key_dim: eight lanes share one, so that a warp reads four at a time,
// in the longest vectors that fit eight of them into a row.
DecodeKeys vk_keys(GdnDecodeKey key) {
  const int row_bytes = key.key_dim * size_of(key.state_dtype);
  key.k_lanes = 8;
  key.vec_bytes = 16;
  while (row_bytes % (key.k_lanes * key.vec_bytes) != 0) key.vec_bytes /= 2;
  DecodeKeys keys{key, key};
  keys.wide.warp_v = 16;
  if (!valid(keys.wide)) keys.wide.warp_v = 8;  // a long key_dim: half as many columns per thread
  keys.wide.warps = 1;
  keys.narrow.warp_v = 8;
  keys.narrow.warps = 2;
  return keys;
}

// Rows of the state lie along value_dim: a warp reads 16 (wide) or 8 (narrow) columns of eight rows
// at a time, or half as many of sixteen, where eight would leave each thread more rows than it has
// registers for.
DecodeKeys kv_keys(GdnDecodeKey key) {
  key.k_lanes = key.key_dim > 128 ? 16 : 8;
  const auto with_vector_of = [&](int elements, int warps) {
    GdnDecodeKey made = key;
    made.vec_bytes = elements * size_of(key.state_dtype);
    made.warp_v = 32 / key.k_lanes * elements;
    made.warps = warps;
    return made;
  };
  return {with_vector_of(4, 4), with_vector_of(2, 2)};
}

}  // namespace

int DecodeProblem::heads() const { return std::max({q_heads, k_heads, v_heads}); }

Status DecodeProblem::check() const {
  // v_heads first: the usual mistake is a tensor-parallel split that leaves groups uneven.
  if (v_heads > k_heads && k_heads >= 1 && v_heads % k_heads != 0) {
    return bad("v_heads", text(v_heads), fmt::format("a multiple of k_heads = {}", k_heads));
  }
  CUBINERY_RETURN_IF_ERROR(check_heads("q_heads", q_heads, heads()));
  CUBINERY_RETURN_IF_ERROR(check_heads("k_heads", k_heads, heads()));
  CUBINERY_RETURN_IF_ERROR(check_heads("v_heads", v_heads, heads()));
  CUBINERY_RETURN_IF_ERROR(check_dim("key_dim", key_dim));
  CUBINERY_RETURN_IF_ERROR(check_dim("value_dim", value_dim));
  CUBINERY_RETURN_IF_ERROR(check_float("dtype", dtype));
  CUBINERY_RETURN_IF_ERROR(check_float("output_dtype", output_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float("gate_dtype", gate_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float("beta_dtype", beta_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float("a_log_dtype", a_log_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float("dt_bias_dtype", dt_bias_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float("state_dtype", state_dtype));
  if (is_float(index_dtype)) return bad("index_dtype", text(index_dtype), "i32, i64");
  if (padding != Padding::kNone && state_location != StateLocation::kPool) {
    return bad("padding", text(padding), "none (padding needs state_location = pool)");
  }
  return {};
}

Result<std::vector<KernelSpec>> DecodeProblem::kernels(std::string_view arch) const {
  CUBINERY_RETURN_IF_ERROR(check());
  if (!parse_arch(arch)) {
    return Status(Code::kInvalidArgument, fmt::format("gdn_decode: arch = {}; accepted: {}", arch,
                                                      fmt::join(known_architectures(), ", ")));
  }
  std::vector<KernelSpec> specs;
  const DecodeKeys keys = decode_keys(*this);
  for (const GdnDecodeKey& key : {keys.wide, keys.narrow}) {
    Result<KernelSpec> spec = spec_of(key);
    if (!spec) return std::move(spec).error();
    specs.push_back(std::move(*spec));
  }
  return specs;
}

std::string DecodeProblem::to_json() const { return cubinery::to_json(*this); }

Result<DecodeProblem> DecodeProblem::from_json(std::string_view json) {
  Result<DecodeProblem> problem = cubinery::from_json<DecodeProblem>(json);
  if (problem) return problem;
  return Status(Code::kInvalidArgument, std::string(problem.error().message()));
}

// Fields that the other ones leave without meaning keep their default, so that equal code has equal
// keys.
DecodeKeys decode_keys(const DecodeProblem& problem) {
  GdnDecodeKey key{.key_dim = problem.key_dim,
                   .value_dim = problem.value_dim,
                   .dtype = problem.dtype,
                   .output_dtype = problem.output_dtype,
                   .state_dtype = problem.state_dtype,
                   .state_layout = problem.state_layout,
                   .state_location = problem.state_location,
                   .padding = problem.padding,
                   .gate_mode = problem.gate_mode,
                   .beta_mode = problem.beta_mode,
                   .use_qk_l2norm = problem.use_qk_l2norm,
                   .has_initial_state = problem.has_initial_state,
                   .store_state = problem.store_state};
  if (problem.gate_mode != GateMode::kNone) key.gate_dtype = problem.gate_dtype;
  if (problem.beta_mode != BetaMode::kOne) key.beta_dtype = problem.beta_dtype;
  if (problem.gate_mode == GateMode::kComputed) {
    key.a_log_dtype = problem.a_log_dtype;
    key.dt_bias_dtype = problem.dt_bias_dtype;
  }
  if (problem.state_location == StateLocation::kPool) key.index_dtype = problem.index_dtype;
  if (problem.padding != Padding::kNone) key.pad_index = problem.pad_index;
  return problem.state_layout == StateLayout::kVK ? vk_keys(key) : kv_keys(key);
}

}  // namespace cubinery::gdn
