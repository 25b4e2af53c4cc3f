// The choices a Gated DeltaNet operator leaves to its caller.  Compiled by the host and by NVRTC:
// no includes.  Persistent: names are part of kernel identities.
#pragma once

namespace cubinery::gdn {

// How one head's state matrix lies in memory.
enum class StateLayout : int {
  kKV,  // [key_dim, value_dim], value_dim innermost (FLA's default)
  kVK,  // [value_dim, key_dim], key_dim innermost (vLLM, SGLang, FlashInfer, llama.cpp; but
        // llama.cpp pairs value head h with key head h mod k_heads: cubinery/gdn.h, Heads)
};

// Where request n finds its state.
enum class StateLocation : int {
  kDense,  // in row n
  kPool,   // in the slot that an index tensor names
};

// The order of the first dimensions of a tensor of tokens.  Packed sequences have no B.
enum class TokenLayout : int {
  kBTHD,  // [B, T, heads, dim]; packed [total, heads, dim]
  kBHTD,  // [B, heads, T, dim]; packed [heads, total, dim]
};

// Which states a prefill or a convolution keeps besides the last one: at every N tokens of a
// sequence (checkpoint_every), or where the launch says.
enum class Checkpoints : int {
  kNone,
  kBefore,  // the state before tokens 0, N, 2N, ... (FLA's h, with N the chunk size)
  kAfter,   // the state after N, 2N, ... tokens, none after a rest of fewer (FlashInfer)
  kAt,      // the states after as many tokens as checkpoint_offsets says, each in a row of its own
};

// How many decays a token and head has.
enum class Decay : int {
  kHead,     // one: S <- exp(g) S (Gated DeltaNet)
  kChannel,  // one for each channel of k: S[d, :] <- exp(g[d]) S[d, :] (Kimi Delta Attention)
};

// The decay exp(g) of a token and head, or of one of its channels.
enum class GateMode : int {
  kNone,        // no decay: g = 0
  kLog,         // g given, natural logarithm
  kAlpha,       // exp(g) given
  kComputed,    // g = -exp(A_log) * softplus(a + dt_bias), softplus(x) = x for x > 20
  kLowerBound,  // g = lower_bound * sigmoid(exp(A_log) * (a + dt_bias)), -5 <= lower_bound < 0
};

// Of kLowerBound.  Over 16 tokens exp(-g) sums up to e^80, which fp32 holds.
inline constexpr float kLeastLowerBound = -5.0f;

// Whether A_log and dt_bias make the decay.
constexpr bool is_computed(GateMode mode) {
  return mode == GateMode::kComputed || mode == GateMode::kLowerBound;
}

// The write strength of a token and head.
enum class BetaMode : int {
  kOne,           // 1
  kGiven,         // beta given
  kLogit,         // sigmoid(b), b given
  kDoubledLogit,  // 2 * sigmoid(b), b given
};

}  // namespace cubinery::gdn
