// Compile-time parameters and arguments of gdn_conv.  Compiled by the host and by NVRTC.
#pragma once

#include "common/conv/params.h"
#include "common/key_rules.h"
#include "common/params.h"
#include "common/verify_params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_conv_types.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_types.h"
#include "cubinery/gdn_verify_types.h"

namespace cubinery {

struct GdnConvKey {
  static constexpr bool kTakesChannelDecays = true;

  // The problem: gdn::ConvProblem explains each.
  int key_dim = 128;  // with use_qk_l2norm, or a decay for each channel
  DType dtype = DType::kBF16;
  DType weight_dtype = DType::kBF16;
  int width = 4;
  gdn::Activation activation = gdn::Activation::kSilu;
  bool has_bias = false;
  bool split_qkv = false;
  gdn::Inputs inputs{.gate_mode = gdn::GateMode::kNone, .beta_mode = gdn::BetaMode::kOne};
  gdn::ConvStates states{};
  DType cu_seqlens_dtype = DType::kI32;
  bool varlen = false;
  gdn::StoredStates stored_states = gdn::StoredStates::kLast;
  gdn::Checkpoints checkpoints = gdn::Checkpoints::kNone;
  bool from_accepted = false;
  DType accepted_dtype = DType::kI32;
  bool circular_state = false;
  // Rows and states are read and written in vectors; else element by element, wherever they lie.
  bool vectors = true;

  // Tuned.  Results depend on none.
  int lane_channels = 8;  // of a thread, next to each other: 4 or 8
  int ahead = 4;          // rows on their way while one is computed
  int warps = 4;          // per block
  int resident = 512;     // threads of a multiprocessor that have registers
  int together = 1;       // decoding steps: sequences that a thread takes at the same time
};

// Boundaries between q, k and v, and between their heads, are multiples of the most channels that a
// thread has.
constexpr bool is_conv_head_dim(int x) { return x >= 8 && x <= 256 && x % 8 == 0; }

constexpr int threads(const GdnConvKey& key) { return key.warps * 32; }
constexpr int min_blocks(const GdnConvKey& key) { return key.resident / threads(key); }

// Rows that a warp takes at the same time, so that what one of them waits for, the sums of a norm
// most of all, the others wait for with it.
constexpr int rows_at_once(const GdnConvKey& key) {
  return key.vectors && key.ahead >= 4 ? 16 / key.lane_channels : 1;
}

// Rows of a thread in shared memory: those on their way, and those that are read.
constexpr int row_places(const GdnConvKey& key) { return key.ahead + rows_at_once(key); }
constexpr int shared_bytes(const GdnConvKey& key) {
  const int row = threads(key) * key.lane_channels * size_of(key.dtype);
  return key.vectors ? row_places(key) * row : 0;
}

constexpr bool has_gates(const gdn::Inputs& inputs) {
  return inputs.gate_mode != gdn::GateMode::kNone || inputs.beta_mode != gdn::BetaMode::kOne;
}

// Lanes that have the channels of a head where it is normalised: a power of two, so that they sum
// by shuffles.  The last ones may have none.
constexpr int head_lanes(const GdnConvKey& key) {
  int lanes = 1;
  while (lanes * key.lane_channels < key.key_dim) lanes *= 2;
  return lanes;
}

// Channels of a warp, of those that are not normalised.
constexpr int warp_channels(const GdnConvKey& key) { return 32 * key.lane_channels; }

// Warps that have all channels.  `heads`: of q and k.
constexpr int channel_warps(const GdnConvKey& key, int heads, int channels) {
  if (!key.inputs.use_qk_l2norm) {
    return (channels + warp_channels(key) - 1) / warp_channels(key);
  }
  const int lanes = head_lanes(key);
  const int others = channels - heads * key.key_dim, of_lanes = lanes * key.lane_channels;
  return ((heads + (others + of_lanes - 1) / of_lanes) * lanes + 31) / 32;
}

// Gates, of a token and head, that a lane makes.
inline constexpr int kGatesOfLane = 16;

// Whether each channel of k has a decay, of which a lane makes those of some neighbours, in some
// tokens.
constexpr bool has_channel_gates(const gdn::Inputs& inputs) {
  return inputs.gate_mode != gdn::GateMode::kNone && inputs.decay == gdn::Decay::kChannel;
}
inline constexpr int kGateChannels = 4;
// As many tokens, or as few as a head has lanes: each of these makes beta of one.
constexpr int gate_tokens(const GdnConvKey& key) {
  return key.key_dim < 16 * kGateChannels ? key.key_dim / kGateChannels : 16;
}
// Warps that have all channels of a token.
constexpr int channel_gate_warps(const GdnConvKey& key, int heads) {
  return (heads * (key.key_dim / kGateChannels) + 31) / 32;
}

// Warps that make the gates of so many tokens.
constexpr long long gate_warps(const GdnConvKey& key, long long tokens, int heads) {
  if (!has_gates(key.inputs)) return 0;
  if (!has_channel_gates(key.inputs)) {
    return (tokens * heads + 32 * kGatesOfLane - 1) / (32 * kGatesOfLane);
  }
  return (tokens + gate_tokens(key) - 1) / gate_tokens(key) * channel_gate_warps(key, heads);
}

// Whether launches of one token of each sequence have code of their own.
constexpr bool has_steps(const GdnConvKey& key) {
  return !key.varlen && key.ahead == 1 && !stores_every(key) &&
         key.checkpoints == gdn::Checkpoints::kNone;
}

// Registers that a thread needs, so many that no compiler spills.
constexpr int registers(const GdnConvKey& key) {
  const int row = key.lane_channels * size_of(key.dtype) / 4;
  const int columns = state_columns(key) * key.lane_channels * size_of(key.states.dtype) / 4;
  const int taps = (key.width + (key.has_bias ? 1 : 0)) * key.lane_channels;
  const int run = taps + key.width * key.lane_channels;
  const int steps = taps + 2 * key.lane_channels + key.together * (row + columns + 4);
  // Columns of a state that are read element by element.
  const bool by_elements =
      has_long_window(key) && key.states.layout == gdn::ConvStateLayout::kColumns;
  // The window that goes on with the tokens, and where its steps lie.
  const int every = stores_every(key) ? columns + 24 : 0;
  const int checkpoints = key.checkpoints == gdn::Checkpoints::kNone ? 0 : 24;
  // Of packed tokens: rows whose squares are summed together, beside what is known of the next
  // sequence, or decays of channels.
  const bool norms_rows = key.inputs.use_qk_l2norm && rows_at_once(key) > 1;
  const bool wide = key.varlen && key.lane_channels == 8;
  const int more = wide && (norms_rows || has_channel_gates(key.inputs)) ? 8 : 0;
  return 44 + (key.varlen ? 16 : 0) + (by_elements ? 24 : 0) + every + checkpoints + more +
         (has_steps(key) && steps > run ? steps : run);
}

constexpr const char* why_invalid(const GdnConvKey& key) {
  if (!is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (!is_float(key.weight_dtype)) return "weight_dtype must be f32, bf16 or f16";
  if (!is_float(key.states.dtype)) return "state_dtype must be f32, bf16 or f16";
  if (!is_integer(key.states.index_dtype)) return "index_dtype must be i32 or i64";
  if (!is_integer(key.cu_seqlens_dtype)) return "cu_seqlens_dtype must be i32 or i64";
  if (!is_integer(key.accepted_dtype)) return "accepted_dtype must be i32 or i64";
  if (key.width < 2 || key.width > 4) return "width must be 2, 3 or 4";
  if (!is_conv_head_dim(key.key_dim)) return "key_dim must be a multiple of 8 from 8 to 256";
  if (const char* reason = why_inputs_invalid(key)) return reason;
  if (key.inputs.gate_mode != gdn::GateMode::kNone && !gdn::is_computed(key.inputs.gate_mode))
    return "gate_mode must be none, computed or lower_bound";
  if (key.inputs.beta_mode == gdn::BetaMode::kGiven)
    return "beta_mode must be one, logit or doubled_logit";
  if (!key.split_qkv && (has_gates(key.inputs) || key.inputs.use_qk_l2norm))
    return "gates and use_qk_l2norm need split_qkv";
  if (key.from_accepted && (!key.states.has_initial || !key.states.store))
    return "from_accepted needs has_initial_state and store_state";
  if (key.circular_state && (!key.states.has_initial || !key.states.store))
    return "circular_state needs has_initial_state and store_state";
  if (key.circular_state && (key.from_accepted || stores_every(key) ||
                             key.checkpoints != gdn::Checkpoints::kNone || key.states.whole_window))
    return "circular_state must be false with from_accepted, stored_states every, checkpoints and "
           "whole_window";
  if (has_long_window(key) && key.states.whole_window)
    return "whole_window must be false with from_accepted, unless stored_states is every";
  if (key.checkpoints != gdn::Checkpoints::kNone && (key.from_accepted || stores_every(key)))
    return "checkpoints must be none with from_accepted, and with stored_states every";
  if (key.lane_channels != 4 && key.lane_channels != 8) return "lane_channels must be 4 or 8";
  const bool is_wide = key.lane_channels * size_of(key.dtype) > 16 ||
                       key.lane_channels * size_of(key.states.dtype) > 16;
  if (is_wide && !(key.inputs.use_qk_l2norm && key.key_dim > 128))
    return "lane_channels must be 4 with f32 rows or states, but for normalised heads over 128";
  if (key.inputs.use_qk_l2norm && head_lanes(key) > 32)
    return "lane_channels must be 8 with use_qk_l2norm and key_dim over 128";
  if (key.ahead < 1 || key.ahead > 16) return "ahead must be from 1 to 16";
  if (!is_power_of_two(key.warps) || key.warps > 8) return "warps must be 1, 2, 4 or 8";
  if (key.resident < threads(key) || key.resident % threads(key) != 0 || key.resident > 1024)
    return "resident must be whole blocks, up to 1024";
  if (!is_power_of_two(key.together) || key.together > 4) return "together must be 1, 2 or 4";
  if (key.together > 1 && !has_steps(key)) return "together needs ahead = 1 without varlen";
  if (registers(key) > 65536 / key.resident) return "a thread needs more registers";
  return nullptr;
}

constexpr bool valid(const GdnConvKey& key) { return why_invalid(key) == nullptr; }

// Strides in elements, as in common/params.h.

// q, k, v or y: channels first ... first + count - 1 of x, heads of `dim` behind each other.
struct ConvOutput {
  void* data;
  long long batch, token, head, channel;
  int first;
  int count;
  int dim;
};

struct WrittenConvStates {
  void* data;
  ConvStateStrides stride;
  long long slots;
};

struct GdnConvParams : ConvInputs {
  int channels;
  int sequences;
  int run;               // tokens that a warp takes behind each other; dense steps: sequences
  int runs;              // of all tokens
  int runs_of_sequence;  // dense
  int channel_warps;
  int norm_heads;         // of q and k, where they are normalised
  long long tokens;       // dense: of each sequence; packed: of all
  ConvOutput outputs[3];  // the last ones may be empty
  float scale;
  StridedVector read_indices;  // pool: the slot of each sequence
  StridedVector write_indices;
  PaddingParams padding;
  StridedVector cu_seqlens;
  StridedVector has_initial;  // nullptr: all have
  StridedVector accepted;     // circular_state: cache_seqlens
  int heads;                  // of the gates
  float lower_bound;
  GateParams<TokenStrides> gates;
  OutputRows<TokenStrides> g, beta;
  bool by_sequence;  // packed: a run is a sequence; `run` tokens are what each has of the gates
  union {
    StateSteps steps;                  // stored_states every
    CheckpointSlots checkpoint_slots;  // checkpoints at offsets, which that has none of
  };
  int draft_tokens;  // stored_states every: of a sequence
  WrittenConvStates checkpoints;
  int checkpoint_every;                // tokens; with checkpoints at offsets 1
  StridedVector checkpoint_cu_starts;  // packed; with checkpoints at offsets, these
};

}  // namespace cubinery
