#include "runtime/gdn/shared/engine_forms.h"

namespace cubinery::gdn {
namespace {

constexpr std::array kEngines{
    Engine{"vllm", "vLLM: the plugin; functions.*: those of cubinery.compat.vllm", "auto",
           "qwen3_next"},
    Engine{"sglang", "SGLang: the plugin; functions.*: those of cubinery.compat.sglang"},
    Engine{"transformers", "Hugging Face Transformers: cubinery.compat.transformers", "f32"},
    Engine{"fla", "flash-linear-attention: cubinery.compat.fla", "f32"},
    Engine{"flashinfer", "FlashInfer: cubinery.compat.flashinfer"},
};

using F = FieldSetting;

// Of convolutions.
constexpr std::array kChannels{F{"state_layout", "channels"}};
constexpr std::array kGatesAndNorms{
    F{"gate_mode", "="},   F{"gate_dtype", "="},    F{"beta_mode", "="},    F{"beta_dtype", "="},
    F{"a_log_dtype", "="}, F{"dt_bias_dtype", "="}, F{"use_qk_l2norm", "="}};
constexpr std::array kUnsplit{F{"split_qkv", "false"}};
constexpr std::array kEveryWindow{F{"stored_states", "every"}};
constexpr std::array kWindows{F{"split_qkv", "false"}, F{"state_location", "dense"},
                              F{"whole_window", "true"}};
constexpr std::array kNoWindows{F{"varlen", "false"}, F{"state_location", "dense"},
                                F{"has_initial_state", "false"}, F{"store_state", "false"}};
constexpr std::array kNewWindows{F{"varlen", "false"}, F{"has_initial_state", "false"}};
constexpr std::array kPackedNewWindows{F{"cu_seqlens_dtype", "i64"},
                                       F{"has_initial_state", "false"}};

// Of recurrences.  Gates and norms are made in front of it, or gates alone.
constexpr std::array kGiven{F{"gate_mode", "log"}, F{"gate_dtype", "f32"}, F{"beta_mode", "given"},
                            F{"beta_dtype", "f32"}, F{"use_qk_l2norm", "false"}};
constexpr std::array kGivenGates{F{"gate_mode", "log"}, F{"gate_dtype", "f32"},
                                 F{"beta_mode", "given"}, F{"beta_dtype", "f32"}};
// Of Transformers and FLA: beta in the model's dtype, states of their own.
constexpr std::array kOwnStates{F{"gate_mode", "log"}, F{"gate_dtype", "f32"},
                                F{"beta_mode", "given"}, F{"state_location", "dense"},
                                F{"state_layout", "kv"}};
constexpr std::array kRepeatedHeads{F{"q_heads", "=v_heads"}, F{"k_heads", "=v_heads"},
                                    F{"varlen", "false"}};
constexpr std::array kRepeatedHeadsFromZero{F{"q_heads", "=v_heads"}, F{"k_heads", "=v_heads"},
                                            F{"varlen", "false"}, F{"has_initial_state", "false"}};
constexpr std::array kFromZero{F{"varlen", "false"}, F{"has_initial_state", "false"}};
constexpr std::array kOneLength{F{"varlen", "false"}};
constexpr std::array kPacked{F{"cu_seqlens_dtype", "i64"}};
constexpr std::array kPackedFromZero{F{"cu_seqlens_dtype", "i64"}, F{"has_initial_state", "false"}};
constexpr std::array kDenseF32{F{"state_location", "dense"}, F{"state_dtype", "f32"}};
constexpr std::array kDenseF32Kept{F{"state_location", "dense"}, F{"state_dtype", "f32"},
                                   F{"checkpoints", "after"}};
constexpr std::array kDense{F{"state_location", "dense"}};
constexpr std::array kKeptBefore{F{"checkpoints", "before"}};
constexpr std::array kAlpha{F{"gate_mode", "alpha"}, F{"state_location", "dense"},
                            F{"state_dtype", "f32"}, F{"cu_seqlens_dtype", "i64"}};
// Of verifications whose states after each token are a buffer's.
constexpr std::array kIntoBuffer{F{"from_accepted", "false"}};
constexpr std::array kIntoBufferOneLength{F{"from_accepted", "false"}, F{"varlen", "false"},
                                          F{"draft_tokens", "16"}};  // whatever T is
constexpr std::array kTree{F{"from_accepted", "false"}, F{"tree", "true"},
                           F{"parents_dtype", "i64"}};

constexpr FieldSettings kAsTheModel{};
constexpr bool kOfDrafts = true;

constexpr std::array kForms{
    EngineForm{"vllm", "conv", "conv", "in front of prefill, with norms and gates", kChannels,
               kGatesAndNorms},
    EngineForm{"vllm", "prefill", "prefill", "packed sequences on the pool", kGiven},
    EngineForm{"vllm", "conv_decode", "conv_decode", "in front of decode", kChannels},
    EngineForm{"vllm", "decode", "decode", "one token of each request", kAsTheModel},
    EngineForm{
        "vllm", "conv_verify", "conv_verify", "in front of verify", kChannels, {}, kOfDrafts},
    EngineForm{"vllm",
               "verify",
               "verify",
               "packed draft tokens, the state after each",
               kAsTheModel,
               {},
               kOfDrafts},
    EngineForm{"vllm", "functions.conv", "conv", "causal_conv1d_fn", kChannels, kUnsplit},
    EngineForm{"vllm", "functions.prefill", "prefill",
               "chunk_gated_delta_rule, fi_chunk_gated_delta_rule", kGiven, kDenseF32},
    EngineForm{"vllm", "functions.prefill_checkpoints", "prefill",
               "fi_chunk_gated_delta_rule with prefix caching", kGiven, kDenseF32Kept},
    EngineForm{"vllm", "functions.conv_decode", "conv_decode", "causal_conv1d_update", kChannels,
               kUnsplit},
    EngineForm{"vllm", "functions.decode", "decode",
               "fused_recurrent_gated_delta_rule_packed_decode, "
               "fused_sigmoid_gating_delta_rule_update",
               kAsTheModel},
    EngineForm{"vllm", "functions.conv_verify", "conv_verify", "causal_conv1d_update with drafts",
               kChannels, kUnsplit, kOfDrafts},
    EngineForm{"vllm",
               "functions.verify",
               "verify",
               "fused_sigmoid_gating_delta_rule_update with drafts",
               kAsTheModel,
               {},
               kOfDrafts},

    EngineForm{"sglang", "conv", "conv", "in front of prefill, with norms and gates",
               kGatesAndNorms},
    EngineForm{"sglang", "prefill", "prefill", "extend behind conv", kGiven},
    EngineForm{"sglang", "prefill_checkpoints", "prefill",
               "extend with the states in front of each chunk, for the radix cache", kGiven,
               kKeptBefore},
    EngineForm{"sglang", "conv_decode", "conv_decode", "in front of decode", kAsTheModel},
    EngineForm{"sglang", "decode", "decode", "one token of each request", kAsTheModel},
    EngineForm{"sglang",
               "conv_verify",
               "conv_decode",
               "in front of verify, the window after each draft token",
               kEveryWindow,
               {},
               kOfDrafts},
    EngineForm{"sglang",
               "verify",
               "verify",
               "target_verify, the state after each draft token",
               kIntoBuffer,
               {},
               kOfDrafts},
    EngineForm{"sglang", "functions.conv", "conv", "causal_conv1d_fn", kUnsplit},
    EngineForm{"sglang", "functions.prefill", "prefill", "chunk_gated_delta_rule", kGivenGates},
    EngineForm{"sglang", "functions.prefill_checkpoints", "prefill",
               "chunk_gated_delta_rule with output_h", kGivenGates, kKeptBefore},
    EngineForm{"sglang", "functions.conv_decode", "conv_decode",
               "causal_conv1d_update, also of draft tokens", kUnsplit},
    EngineForm{"sglang", "functions.decode", "decode",
               "fused_recurrent_gated_delta_rule_packed_decode, "
               "fused_sigmoid_gating_delta_rule_update",
               kAsTheModel},
    EngineForm{"sglang", "functions.conv_verify", "conv_decode",
               "causal_conv1d_update with intermediate_conv_window", kUnsplit, kEveryWindow,
               kOfDrafts},
    EngineForm{"sglang",
               "functions.verify",
               "verify",
               "fused_sigmoid_gating_delta_rule_update of target_verify",
               kIntoBuffer,
               {},
               kOfDrafts},
    EngineForm{"sglang",
               "functions.verify_tree",
               "verify",
               "the same with retrieve_parent_token",
               kTree,
               {},
               kOfDrafts},

    EngineForm{"transformers", "conv", "conv", "causal_conv1d_fn of a prompt", kUnsplit,
               kNoWindows},
    EngineForm{"transformers", "prefill", "prefill", "chunk_gated_delta_rule of a prompt",
               kOwnStates, kRepeatedHeadsFromZero},
    EngineForm{"transformers", "prefill_more", "prefill", "chunk_gated_delta_rule behind a state",
               kOwnStates, kRepeatedHeads},
    EngineForm{"transformers", "conv_decode", "conv_decode",
               "causal_conv1d_update, also of more tokens", kWindows},
    EngineForm{"transformers", "decode", "decode", "recurrent_gated_delta_rule of one token",
               kOwnStates, kRepeatedHeads},

    EngineForm{"fla", "conv", "conv", "causal_conv1d", kWindows, kNewWindows},
    EngineForm{"fla", "conv_packed", "conv", "causal_conv1d with cu_seqlens", kWindows,
               kPackedNewWindows},
    EngineForm{"fla", "prefill", "prefill", "chunk_gated_delta_rule", kOwnStates, kFromZero},
    EngineForm{"fla", "prefill_more", "prefill", "chunk_gated_delta_rule with initial_state",
               kOwnStates, kOneLength},
    EngineForm{"fla", "prefill_packed", "prefill", "chunk_gated_delta_rule with cu_seqlens",
               kOwnStates, kPackedFromZero},
    EngineForm{"fla", "prefill_packed_more", "prefill", "the same with initial_state", kOwnStates,
               kPacked},
    EngineForm{"fla", "conv_decode", "conv_decode", "causal_conv1d_update", kWindows},
    EngineForm{"fla", "decode", "decode", "fused_recurrent_gated_delta_rule of one token",
               kOwnStates},

    EngineForm{"flashinfer", "prefill", "prefill", "chunk_gated_delta_rule", kGiven, kAlpha},
    EngineForm{"flashinfer", "decode", "decode", "gated_delta_rule_decode_pretranspose with a pool",
               kAsTheModel},
    EngineForm{"flashinfer", "decode_dense", "decode",
               "gated_delta_rule_decode_pretranspose with a state for each row", kDense},
    EngineForm{"flashinfer",
               "verify",
               "verify",
               "gated_delta_rule_mtp with intermediate_states_buffer",
               kIntoBufferOneLength,
               {},
               kOfDrafts},
};

}  // namespace

std::span<const Engine> known_engines() { return kEngines; }

std::span<const EngineForm> engine_forms() { return kForms; }

}  // namespace cubinery::gdn
