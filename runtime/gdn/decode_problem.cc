#include "runtime/gdn/decode_problem.h"

#include <algorithm>

#include "gdn_decode/fields.h"
#include "runtime/gdn/decode_plan.h"
#include "runtime/gdn/problem_check.h"

namespace cubinery::gdn {
namespace {

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

Status DecodeProblem::check() const { return check_shared_fields(*this); }

Result<std::vector<KernelSpec>> DecodeProblem::kernels(std::string_view arch) const {
  return gdn::kernels(*this, arch, embedded_known_results(kDecodeOp));
}

Result<std::vector<KernelSpec>> kernels(const DecodeProblem& problem, std::string_view arch,
                                        const KnownResults& known) {
  CUBINERY_RETURN_IF_ERROR(problem.check());
  if (Result<Arch> known = check_arch(kDecodeOp, arch); !known) {
    return std::move(known).error();
  }
  std::vector<KernelSpec> specs;
  for (const auto& key : decode_plan_keys(problem, arch, known.results, known.templates)) {
    CUBINERY_RETURN_IF_ERROR(add_spec(key, &specs));
  }
  return specs;
}

std::string DecodeProblem::to_json() const { return cubinery::to_json(*this); }

Result<DecodeProblem> DecodeProblem::from_json(std::string_view json) {
  return problem_from_json<DecodeProblem>(json);
}

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
  set_gate_dtypes(problem, &key);
  set_index_fields(problem, &key);
  return problem.state_layout == StateLayout::kVK ? vk_keys(key) : kv_keys(key);
}

}  // namespace cubinery::gdn
