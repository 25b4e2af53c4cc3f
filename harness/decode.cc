#include "harness/decode.h"

#include <cstddef>
#include <utility>

#include "runtime/gdn/decode/args.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery {

using gdn::DecodeProblem;
using gdn::PrefillProblem;

// The fields that both have are copied by their names.
GdnProblem as_prefill(const DecodeProblem& problem) {
  PrefillProblem plain{.varlen = true};
  copy_fields(problem, &plain);
  GdnProblem same = plain;
  same.output_norm = problem.output_norm;
  same.norm_weight_dtype = problem.norm_weight_dtype;
  same.conv = problem.conv;
  return same;
}

gdn::DecodeArgs as_decode(const GdnArgs& packed) {
  auto args = copied_args<gdn::DecodeArgs>(packed);
  for (const auto& row : gdn::kTensorRows<gdn::DecodeArgs>) {
    if (packed.o.rank != 4 || !is_of_tokens(row.kind)) continue;
    Tensor& rows = row.in(args);
    std::swap(rows.shape[0], rows.shape[1]);
    rows.strides[0] = rows.strides[1];
  }
  return args;
}

TwoLaunches as_two_launches(const DecodeProblem& problem, const gdn::DecodeArgs& args, void* rows) {
  TwoLaunches two{.conv = gdn::conv_in_front(problem), .decode = problem, .decode_args = args};
  two.decode.conv = {};
  const std::int64_t batch = args.x.shape[0], channels = split_channels(two.conv);
  std::int64_t first = 0;
  const auto slice = [&](int heads, int dim) {
    Tensor part = Tensor::contiguous(static_cast<std::byte*>(rows) + first * size_of(problem.dtype),
                                     problem.dtype, {batch, 1, heads, dim});
    part.strides[0] = part.strides[1] = channels;
    first += std::int64_t{heads} * dim;
    return part;
  };
  gdn::DecodeArgs& decode = two.decode_args;
  decode.q = slice(problem.heads.q, problem.key_dim);
  decode.k = slice(problem.heads.k, problem.key_dim);
  decode.v = slice(problem.heads.v, problem.value_dim);
  decode.x = decode.conv_weight = decode.conv_bias = decode.conv_state = decode.conv_state_out = {};
  two.conv_args = {.x = gdn::with_one_token(args.x),
                   .weight = args.conv_weight,
                   .bias = args.conv_bias,
                   .q = decode.q,
                   .k = decode.k,
                   .v = decode.v,
                   .state = args.conv_state,
                   .state_out = args.conv_state_out,
                   .state_indices = args.state_indices,
                   .state_out_indices = args.state_out_indices,
                   .pad_slot_id = args.pad_slot_id,
                   .zero_padding = args.zero_padding,
                   .scratch_slot = args.scratch_slot,
                   .enable_pdl = args.enable_pdl};
  return two;
}

}  // namespace cubinery
