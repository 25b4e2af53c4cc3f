/* The arguments of launches, for cubinery/c_api.h, which includes it.  Behind a tensor's shape is
 * its dtype: a field of the problem, or the dtype itself.  The C++ headers (cubinery/gdn_decode.h
 * and others) say more of each; "absent" there is NULL here.
 *
 * Written by scripts/print_fields.py: change the tables, tables.h in the operators' folders under
 * runtime/gdn, instead. */
/* clang-format off */
#ifndef CUBINERY_C_ARGS_H_
#define CUBINERY_C_ARGS_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* gdn::DecodeArgs. */
typedef struct CubineryDecodeArgs {
  size_t struct_size;
  /* [B, q_heads, key_dim], dtype; NULL: with conv_width they come from x */
  const DLTensor* q;
  /* [B, k_heads, key_dim], dtype; NULL: with conv_width they come from x */
  const DLTensor* k;
  /* [B, v_heads, value_dim], dtype; NULL: with conv_width they come from x */
  const DLTensor* v;
  /* [B, heads], with decay channel [..., key_dim], gate_dtype; g, alpha or a, as gate_mode says;
   * NULL: gate_mode is none */
  const DLTensor* g;
  /* [B, heads], beta_dtype; beta or its logit, as beta_mode says; NULL: beta_mode is one */
  const DLTensor* beta;
  /* [heads], a_log_dtype; NULL: zeros, where gate_mode is lower_bound, or gate_mode is neither
   * computed nor lower_bound */
  const DLTensor* A_log;
  /* [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel also [heads *
   * key_dim]; NULL: zeros, where decay is channel, or gate_mode is neither computed nor lower_bound */
  const DLTensor* dt_bias;
  /* [B, heads, value_dim], output_dtype; written */
  const DLTensor* o;
  /* [B or slots, heads, rows, columns], state_dtype; read and written; NULL: has_initial_state and
   * store_state are false */
  const DLTensor* state;
  /* [B or slots, heads, rows, columns], state_dtype; written; where new states go; NULL: in place,
   * or store_state is false */
  const DLTensor* state_out;
  /* [B], index_dtype; the slots to read; NULL: state_location is dense */
  const DLTensor* state_indices;
  /* [B], index_dtype; the slots to write; NULL: those that are read, or state_location is dense */
  const DLTensor* state_out_indices;
  /* [B, heads, value_dim], dtype; the gate of the norm; NULL: output_norm is none */
  const DLTensor* z;
  /* [value_dim], norm_weight_dtype; NULL: output_norm is none */
  const DLTensor* norm_weight;
  /* [B, channels], dtype; NULL: conv_width is 0 */
  const DLTensor* x;
  /* [channels, width], conv_weight_dtype; NULL: conv_width is 0 */
  const DLTensor* conv_weight;
  /* [channels], conv_weight_dtype; NULL: conv_width is 0, or has_bias is false */
  const DLTensor* conv_bias;
  /* [B or slots, channels, columns], conv_state_dtype; read and written; as conv_state_layout says,
   * without gaps; NULL: conv_width is 0, or has_initial_state and store_state are false */
  const DLTensor* conv_state;
  /* [B or slots, channels, columns], conv_state_dtype; written; where new ones go; NULL: in place,
   * or conv_width is 0, or store_state is false */
  const DLTensor* conv_state_out;
  /* the index that means that a row is padding, or, negative, that every negative one does;
   * state_location pool only; NULL: no index is padding */
  const int64_t* pad_slot_id;
  /* outputs of rows of padding are set to zero, not left alone; needs pad_slot_id; 0 or 1 */
  int64_t zero_padding;
  /* the slot that rows of padding are computed on; needs pad_slot_id, without zero_padding; NULL:
   * they are not computed */
  const int64_t* scratch_slot;
  /* q is multiplied by it; NULL: key_dim^-1/2 */
  const float* scale;
  /* the least of the decay's logarithm, -5 to below 0; NULL: gate_mode is not lower_bound */
  const float* lower_bound;
  /* with output_norm only; NULL: 1e-6 */
  const float* norm_eps;
  /* the launch may overlap the kernel in front of it (sm_90 and newer); 0 or 1 */
  int64_t enable_pdl;
} CubineryDecodeArgs;
#define CUBINERY_DECODE_ARGS_INIT                                                                 \
  {                                                                                               \
    sizeof(CubineryDecodeArgs), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,       \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0      \
  }

/* gdn::PrefillArgs. */
typedef struct CubineryPrefillArgs {
  size_t struct_size;
  /* [B, T, q_heads, key_dim], packed [total, q_heads, key_dim], dtype */
  const DLTensor* q;
  /* [B, T, k_heads, key_dim], packed [total, k_heads, key_dim], dtype */
  const DLTensor* k;
  /* [B, T, v_heads, value_dim], packed [total, v_heads, value_dim], dtype */
  const DLTensor* v;
  /* [B, T, heads], packed [total, heads], with decay channel [..., key_dim], gate_dtype; g, alpha
   * or a, as gate_mode says; NULL: gate_mode is none */
  const DLTensor* g;
  /* [B, T, heads], packed [total, heads], beta_dtype; beta or its logit, as beta_mode says; NULL:
   * beta_mode is one */
  const DLTensor* beta;
  /* [heads], a_log_dtype; NULL: zeros, where gate_mode is lower_bound, or gate_mode is neither
   * computed nor lower_bound */
  const DLTensor* A_log;
  /* [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel also [heads *
   * key_dim]; NULL: zeros, where decay is channel, or gate_mode is neither computed nor lower_bound */
  const DLTensor* dt_bias;
  /* [B, T, heads, value_dim], packed [total, heads, value_dim], output_dtype; written */
  const DLTensor* o;
  /* [N or slots, heads, rows, columns], state_dtype; read and written; NULL: has_initial_state and
   * store_state are false */
  const DLTensor* state;
  /* [N or slots, heads, rows, columns], state_dtype; written; where new states go; NULL: in place,
   * or store_state is false */
  const DLTensor* state_out;
  /* [N], index_dtype; the slots to read; NULL: state_location is dense */
  const DLTensor* state_indices;
  /* [N], index_dtype; the slots to write; NULL: those that are read, or state_location is dense */
  const DLTensor* state_out_indices;
  /* [N + 1], cu_seqlens_dtype; sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1; NULL:
   * varlen is false */
  const DLTensor* cu_seqlens;
  /* [N], bool; whether a sequence starts from its state, or from zero; NULL: all do, or the
   * problem's has_initial_state is false */
  const DLTensor* has_initial_state;
  /* [checkpoints, heads, rows, columns], state_dtype; written; states that are kept besides the
   * last; NULL: checkpoints is none */
  const DLTensor* checkpoints;
  /* [N + 1], cu_seqlens_dtype; where the checkpoints of each sequence begin; NULL: checkpoints is
   * none, or checkpoints is at, or varlen is false */
  const DLTensor* checkpoint_cu_starts;
  /* [N, K], i32; tokens of the sequence that each of its checkpoints has taken in, ascending; 0 or
   * less: there is none; NULL: the launch keeps none, or checkpoints is not at */
  const DLTensor* checkpoint_offsets;
  /* [N, K], index_dtype; the rows of checkpoints that they go to; negative or padding: there is
   * none; NULL: the launch keeps none, or checkpoints is not at */
  const DLTensor* checkpoint_slots;
  /* the index that means that a row is padding, or, negative, that every negative one does;
   * state_location pool only; NULL: no index is padding */
  const int64_t* pad_slot_id;
  /* outputs of rows of padding are set to zero, not left alone; needs pad_slot_id; 0 or 1 */
  int64_t zero_padding;
  /* the slot that rows of padding are computed on; needs pad_slot_id, without zero_padding; NULL:
   * they are not computed */
  const int64_t* scratch_slot;
  /* tokens from one checkpoint to the next, a multiple of the problem's; NULL: the problem's */
  const int64_t* checkpoint_every;
  /* q is multiplied by it; NULL: key_dim^-1/2 */
  const float* scale;
  /* the least of the decay's logarithm, -5 to below 0; NULL: gate_mode is not lower_bound */
  const float* lower_bound;
  /* tokens of the longest sequence, a hint; varlen only; 0: not known */
  int64_t max_seqlen;
  /* the launch may overlap the kernel in front of it (sm_90 and newer); 0 or 1 */
  int64_t enable_pdl;
  /* 1, 2 or 3: start, carry or finish; context_parallel only; 0: all of them */
  int64_t step;
  /* the first sequence goes on from the GPU in front, so its initial state is read by step 2;
   * context_parallel only; 0 or 1 */
  int64_t continues;
} CubineryPrefillArgs;
#define CUBINERY_PREFILL_ARGS_INIT                                                                \
  {                                                                                               \
    sizeof(CubineryPrefillArgs), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,      \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0   \
  }

/* gdn::VerifyArgs. */
typedef struct CubineryVerifyArgs {
  size_t struct_size;
  /* [B, T, q_heads, key_dim], packed [total, q_heads, key_dim], dtype */
  const DLTensor* q;
  /* [B, T, k_heads, key_dim], packed [total, k_heads, key_dim], dtype */
  const DLTensor* k;
  /* [B, T, v_heads, value_dim], packed [total, v_heads, value_dim], dtype */
  const DLTensor* v;
  /* [B, T, heads], packed [total, heads], with decay channel [..., key_dim], gate_dtype; g, alpha
   * or a, as gate_mode says; NULL: gate_mode is none */
  const DLTensor* g;
  /* [B, T, heads], packed [total, heads], beta_dtype; beta or its logit, as beta_mode says; NULL:
   * beta_mode is one */
  const DLTensor* beta;
  /* [heads], a_log_dtype; NULL: zeros, where gate_mode is lower_bound, or gate_mode is neither
   * computed nor lower_bound */
  const DLTensor* A_log;
  /* [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel also [heads *
   * key_dim]; NULL: zeros, where decay is channel, or gate_mode is neither computed nor lower_bound */
  const DLTensor* dt_bias;
  /* [B, T, heads, value_dim], packed [total, heads, value_dim], output_dtype; written */
  const DLTensor* o;
  /* [N or slots, heads, rows, columns], state_dtype; read and written; NULL: has_initial_state and
   * store_state are false */
  const DLTensor* state;
  /* [N or slots, heads, rows, columns], state_dtype; written; where new states go; NULL: in place,
   * or store_state is false */
  const DLTensor* state_out;
  /* [N], index_dtype; the slots to read; NULL: state_location is dense */
  const DLTensor* state_indices;
  /* [N], index_dtype; the slots to write; NULL: those that are read, or state_location is dense */
  const DLTensor* state_out_indices;
  /* [N + 1], cu_seqlens_dtype; sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1; NULL:
   * varlen is false */
  const DLTensor* cu_seqlens;
  /* [N], accepted_dtype; so many tokens of the launch before were accepted; 0 is taken as 1; NULL:
   * from_accepted is false */
  const DLTensor* accepted;
  /* [B, T], packed [total], parents_dtype; the token of its request that each follows, from 0, in
   * front of it; -1: the initial state; NULL: tree is false */
  const DLTensor* parents;
  /* [B, T, heads, value_dim], packed [total, heads, value_dim], dtype; the gate of the norm; NULL:
   * output_norm is none */
  const DLTensor* z;
  /* [value_dim], norm_weight_dtype; NULL: output_norm is none */
  const DLTensor* norm_weight;
  /* the index that means that a row is padding, or, negative, that every negative one does;
   * state_location pool only; NULL: no index is padding */
  const int64_t* pad_slot_id;
  /* outputs of rows of padding are set to zero, not left alone; needs pad_slot_id; 0 or 1 */
  int64_t zero_padding;
  /* the slot that rows of padding are computed on; needs pad_slot_id, without zero_padding; NULL:
   * they are not computed */
  const int64_t* scratch_slot;
  /* q is multiplied by it; NULL: key_dim^-1/2 */
  const float* scale;
  /* the least of the decay's logarithm, -5 to below 0; NULL: gate_mode is not lower_bound */
  const float* lower_bound;
  /* with output_norm only; NULL: 1e-6 */
  const float* norm_eps;
  /* the launch may overlap the kernel in front of it (sm_90 and newer); 0 or 1 */
  int64_t enable_pdl;
} CubineryVerifyArgs;
#define CUBINERY_VERIFY_ARGS_INIT                                                                 \
  {                                                                                               \
    sizeof(CubineryVerifyArgs), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,       \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0                  \
  }

/* gdn::CommitLayer. */
typedef struct CubineryCommitLayer {
  /* [B, T, k_heads, key_dim], packed [total, k_heads, key_dim], dtype */
  const DLTensor* k;
  /* [B, T, v_heads, value_dim], packed [total, v_heads, value_dim], dtype */
  const DLTensor* v;
  /* [B, T, heads], packed [total, heads], with decay channel [..., key_dim], gate_dtype; g, alpha
   * or a, as gate_mode says; NULL: gate_mode is none */
  const DLTensor* g;
  /* [B, T, heads], packed [total, heads], beta_dtype; beta or its logit, as beta_mode says; NULL:
   * beta_mode is one */
  const DLTensor* beta;
  /* [heads], a_log_dtype; NULL: zeros, where gate_mode is lower_bound, or gate_mode is neither
   * computed nor lower_bound */
  const DLTensor* A_log;
  /* [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel also [heads *
   * key_dim]; NULL: zeros, where decay is channel, or gate_mode is neither computed nor lower_bound */
  const DLTensor* dt_bias;
  /* [N or slots, heads, rows, columns], state_dtype; read and written; NULL: has_initial_state and
   * store_state are false */
  const DLTensor* state;
  /* [N or slots, heads, rows, columns], state_dtype; written; where new states go; NULL: in place,
   * or store_state is false */
  const DLTensor* state_out;
} CubineryCommitLayer;
#define CUBINERY_COMMIT_LAYER_INIT                                                                \
  {                                                                                               \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL                                                \
  }

/* gdn::CommitArgs. */
typedef struct CubineryCommitArgs {
  size_t struct_size;
  CubineryCommitLayer layer;
  /* [layers, 32], i64; what table() made, without gaps */
  const DLTensor* layers;
  /* [N], accepted_dtype; so many tokens of each request are accepted; NULL: all of them */
  const DLTensor* accepted;
  /* [N + 1], cu_seqlens_dtype; sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1; NULL:
   * varlen is false */
  const DLTensor* cu_seqlens;
  /* [N], index_dtype; the slots to read; NULL: state_location is dense */
  const DLTensor* state_indices;
  /* [N], index_dtype; the slots to write; NULL: those that are read, or state_location is dense */
  const DLTensor* state_out_indices;
  /* the index that means that a row is padding, or, negative, that every negative one does;
   * state_location pool only; NULL: no index is padding */
  const int64_t* pad_slot_id;
  /* the slot that rows of padding are computed on; needs pad_slot_id, without zero_padding; NULL:
   * they are not computed */
  const int64_t* scratch_slot;
  /* the least of the decay's logarithm, -5 to below 0; NULL: gate_mode is not lower_bound */
  const float* lower_bound;
  /* the launch may overlap the kernel in front of it (sm_90 and newer); 0 or 1 */
  int64_t enable_pdl;
} CubineryCommitArgs;
#define CUBINERY_COMMIT_ARGS_INIT                                                                 \
  {                                                                                               \
    sizeof(CubineryCommitArgs), CUBINERY_COMMIT_LAYER_INIT, NULL, NULL, NULL, NULL, NULL, NULL,   \
    NULL, NULL, 0                                                                                 \
  }

/* gdn::ConvArgs. */
typedef struct CubineryConvArgs {
  size_t struct_size;
  /* [B, T, channels], packed [total, channels], dtype */
  const DLTensor* x;
  /* [channels, width], weight_dtype */
  const DLTensor* weight;
  /* [channels], weight_dtype; NULL: has_bias is false */
  const DLTensor* bias;
  /* [B, T, channels], packed [total, channels], dtype; written; NULL: split_qkv is true */
  const DLTensor* y;
  /* [B, T, q_heads, key_dim], packed [total, q_heads, key_dim], dtype; written; NULL: split_qkv is
   * false */
  const DLTensor* q;
  /* [B, T, k_heads, key_dim], packed [total, k_heads, key_dim], dtype; written; NULL: split_qkv is
   * false */
  const DLTensor* k;
  /* [B, T, v_heads, value_dim], packed [total, v_heads, value_dim], dtype; written; NULL: split_qkv
   * is false */
  const DLTensor* v;
  /* [B, T, heads], packed [total, heads], with decay channel [..., key_dim], gate_dtype; the
   * decay's input; NULL: gate_mode is none */
  const DLTensor* a;
  /* [B, T, heads], packed [total, heads], beta_dtype; beta's logit; NULL: beta_mode is one */
  const DLTensor* b;
  /* [heads], a_log_dtype; NULL: zeros, where gate_mode is lower_bound, or gate_mode is none */
  const DLTensor* A_log;
  /* [heads], with decay channel [..., key_dim], dt_bias_dtype; with decay channel also [heads *
   * key_dim]; NULL: zeros, where decay is channel, or gate_mode is none */
  const DLTensor* dt_bias;
  /* [B, T, heads], packed [total, heads], with decay channel [..., key_dim], f32; written; the
   * decay's logarithm; NULL: gate_mode is none */
  const DLTensor* g;
  /* [B, T, heads], packed [total, heads], f32; written; NULL: beta_mode is one */
  const DLTensor* beta;
  /* [N + 1], cu_seqlens_dtype; sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1; NULL:
   * varlen is false */
  const DLTensor* cu_seqlens;
  /* [N], bool; whether a sequence starts from its state, or from zero; NULL: all do, or the
   * problem's has_initial_state is false */
  const DLTensor* has_initial_state;
  /* [N], accepted_dtype; so many tokens of the launch before were accepted; 0 is taken as 1; NULL:
   * from_accepted is false */
  const DLTensor* accepted;
  /* [N], i32; the inputs that a sequence has had: input i is in column i mod columns; NULL:
   * circular_state is false */
  const DLTensor* cache_seqlens;
  /* [N or slots, channels, columns], state_dtype; read and written; NULL: has_initial_state and
   * store_state are false */
  const DLTensor* state;
  /* [N or slots, channels, columns], state_dtype; written; where new states go; NULL: in place, or
   * store_state is false, or circular_state is true */
  const DLTensor* state_out;
  /* [N], index_dtype; the slots to read; NULL: state_location is dense */
  const DLTensor* state_indices;
  /* [N], index_dtype; the slots to write; NULL: those that are read, or state_location is dense, or
   * circular_state is true */
  const DLTensor* state_out_indices;
  /* [checkpoints, channels, columns], state_dtype; written; states that are kept besides the last;
   * NULL: checkpoints is none */
  const DLTensor* checkpoints;
  /* [N + 1], cu_seqlens_dtype; where the checkpoints of each sequence begin; NULL: checkpoints is
   * none, or checkpoints is at, or varlen is false */
  const DLTensor* checkpoint_cu_starts;
  /* [N, K], i32; tokens of the sequence that each of its checkpoints has taken in, ascending; 0 or
   * less: there is none; NULL: the launch keeps none, or checkpoints is not at */
  const DLTensor* checkpoint_offsets;
  /* [N, K], index_dtype; the rows of checkpoints that they go to; negative or padding: there is
   * none; NULL: the launch keeps none, or checkpoints is not at */
  const DLTensor* checkpoint_slots;
  /* the index that means that a row is padding, or, negative, that every negative one does;
   * state_location pool only; NULL: no index is padding */
  const int64_t* pad_slot_id;
  /* outputs of rows of padding are set to zero, not left alone; needs pad_slot_id; 0 or 1 */
  int64_t zero_padding;
  /* the slot that rows of padding are computed on; needs pad_slot_id, without zero_padding; NULL:
   * they are not computed */
  const int64_t* scratch_slot;
  /* tokens from one checkpoint to the next, a multiple of the problem's; NULL: the problem's */
  const int64_t* checkpoint_every;
  /* q is multiplied by it; split_qkv only; NULL: 1 */
  const float* scale;
  /* the least of the decay's logarithm, -5 to below 0; NULL: gate_mode is not lower_bound */
  const float* lower_bound;
  /* tokens of the longest sequence, a hint; varlen only; 0: not known */
  int64_t max_seqlen;
  /* the launch may overlap the kernel in front of it (sm_90 and newer); 0 or 1 */
  int64_t enable_pdl;
} CubineryConvArgs;
#define CUBINERY_CONV_ARGS_INIT                                                                   \
  {                                                                                               \
    sizeof(CubineryConvArgs), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,   \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0,  \
    NULL, NULL, NULL, NULL, 0, 0                                                                  \
  }

#ifdef __cplusplus
}
#endif

#endif /* CUBINERY_C_ARGS_H_ */
