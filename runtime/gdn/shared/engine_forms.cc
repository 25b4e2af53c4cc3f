#include "runtime/gdn/shared/engine_forms.h"

namespace cubinery::gdn {
namespace {

constexpr std::array kEngines{
    Engine{"vllm", "auto", "auto", "qwen3_next", Family::kLing},
    Engine{"sglang"},
    Engine{"transformers", "f32"},
    Engine{"fla", "f32"},
    Engine{"flashinfer"},
    Engine{"tensorrt_llm", {}, {}, kEveryModel},
    Engine{"tokenspeed", "f32"},
};

// Norms and gates that a convolution makes, and a recurrence that is given both, or gates alone.
constexpr std::string_view kMakes =
    "gate_mode=@ gate_dtype=@ beta_mode=@ beta_dtype=@ a_log_dtype=@ dt_bias_dtype=@ "
    "use_qk_l2norm=@";
constexpr std::string_view kGiven =
    "gate_mode=log gate_dtype=f32 beta_mode=given beta_dtype=f32 use_qk_l2norm=false";
constexpr std::string_view kGates = "gate_mode=log gate_dtype=f32 beta_mode=given beta_dtype=f32";
// Of Transformers and FLA: beta in the model's dtype, states of the caller's.
constexpr std::string_view kOwn =
    "gate_mode=log gate_dtype=f32 beta_mode=given state_location=dense state_layout=kv";
// Of prefills on copies of the states, beta in the model's dtype.
constexpr std::string_view kCopied =
    "gate_mode=log gate_dtype=f32 beta_mode=given state_location=dense";
// Draft tokens that lie as [N, T], whatever T is.
constexpr std::string_view kDrafted = "from_accepted=false varlen=false draft_tokens=16";
constexpr std::string_view kWindowOfEach = "split_qkv=false stored_states=every";
constexpr std::string_view kWindows = "split_qkv=false state_location=dense whole_window=true";
// Of vLLM.
constexpr std::string_view kChannels = "state_layout=channels";
constexpr std::string_view kNorm = "output_norm=@ norm_weight_dtype=@dtype";

constexpr std::string_view kSame;
constexpr bool kDrafts = true;
constexpr std::string_view kWithConv = "decode_with_conv";

constexpr EngineForm of_kimi(EngineForm form, OfKimi which = OfKimi::kAlways) {
  form.of_kimi = which;
  return form;
}

constexpr std::array kForms{
    // The plugin.  vLLM keeps states inside a prefill of Kimi Delta Attention where FlashKDA does,
    // which needs a bound.
    of_kimi({"vllm", "conv", "conv", kMakes, kChannels}),
    of_kimi({"vllm", "prefill", "prefill", kGiven}),
    of_kimi({"vllm", "conv_kept", "conv", kMakes, "state_layout=channels checkpoints=at"},
            OfKimi::kBounded),
    of_kimi({"vllm", "prefill_kept", "prefill", kGiven, "checkpoints=at"}, OfKimi::kBounded),
    of_kimi({"vllm", "decode_with_conv", kWithConv, "conv_state_layout=channels", kNorm}),
    of_kimi({"vllm", "conv_decode", "conv_decode", kSame, kChannels, false, kWithConv}),
    of_kimi({"vllm", "decode", "decode", kSame, kNorm, false, kWithConv}),
    of_kimi({"vllm", "conv_verify", "conv_verify", kSame, kChannels, kDrafts}),
    of_kimi({"vllm", "verify", "verify", kSame, kNorm, kDrafts}),
    // cubinery.compat.vllm.  Prefills have copies of the states.
    EngineForm{"vllm", "functions.conv", "conv", "split_qkv=false", kChannels},
    EngineForm{"vllm", "functions.prefill", "prefill", kGiven,
               "state_location=dense state_dtype=f32"},
    EngineForm{"vllm", "functions.prefill_kept", "prefill", kGiven,
               "state_location=dense state_dtype=f32 checkpoints=after"},
    EngineForm{"vllm", "functions.conv_decode", "conv_decode", "split_qkv=false", kChannels},
    EngineForm{"vllm", "functions.decode", "decode", "output_norm=none"},
    EngineForm{"vllm", "functions.conv_verify", "conv_verify", "split_qkv=false", kChannels,
               kDrafts},
    EngineForm{"vllm", "functions.verify", "verify", "output_norm=none", kSame, kDrafts},

    // The plugin.  Drafts are convolved by SGLang.
    of_kimi({"sglang", "conv", "conv", kMakes}),
    of_kimi({"sglang", "prefill", "prefill", kGiven}),
    of_kimi({"sglang", "prefill_kept", "prefill", kGiven, "checkpoints=before"}),
    of_kimi({"sglang", "decode_with_conv", kWithConv, kSame}),
    of_kimi({"sglang", "conv_decode", "conv_decode", kSame, kSame, false, kWithConv}),
    of_kimi({"sglang", "decode", "decode", kSame, kSame, false, kWithConv}),
    of_kimi({"sglang", "verify", "verify", kSame, "from_accepted=false varlen=false", kDrafts}),
    // cubinery.compat.sglang.  Drafts are convolved twice: for their windows, and in place.
    of_kimi({"sglang", "functions.conv", "conv", kSame, "split_qkv=false"}),
    of_kimi({"sglang", "functions.prefill", "prefill", kGates}),
    of_kimi({"sglang", "functions.prefill_kept", "prefill", kGates, "checkpoints=before"}),
    of_kimi({"sglang", "functions.conv_decode", "conv_decode", kSame, "split_qkv=false"}),
    of_kimi({"sglang", "functions.decode", "decode", kSame}),
    of_kimi({"sglang", "functions.conv_verify", "conv_decode", kSame, kWindowOfEach, kDrafts}),
    of_kimi({"sglang", "functions.verify", "verify", kSame, "from_accepted=false", kDrafts}),
    of_kimi({"sglang", "functions.verify_tree", "verify", kSame,
             "from_accepted=false tree=true parents_dtype=i64", kDrafts}),

    // Heads of q and k are repeated.
    EngineForm{"transformers", "conv", "conv",
               "split_qkv=false state_location=dense has_initial_state=false store_state=false",
               "varlen=false"},
    EngineForm{"transformers", "prefill", "prefill", kOwn,
               "q_heads=@v_heads k_heads=@v_heads varlen=false has_initial_state=false"},
    EngineForm{"transformers", "prefill_more", "prefill", kOwn,
               "q_heads=@v_heads k_heads=@v_heads varlen=false"},
    EngineForm{"transformers", "conv_decode", "conv_decode", kWindows},
    EngineForm{"transformers", "decode", "decode", kOwn, "q_heads=@v_heads k_heads=@v_heads"},

    EngineForm{"fla", "conv", "conv", kWindows, "varlen=false has_initial_state=false"},
    EngineForm{"fla", "conv_packed", "conv", kWindows,
               "cu_seqlens_dtype=i64 has_initial_state=false"},
    EngineForm{"fla", "prefill", "prefill", kOwn, "varlen=false has_initial_state=false"},
    EngineForm{"fla", "prefill_more", "prefill", kOwn, "varlen=false"},
    EngineForm{"fla", "prefill_packed", "prefill", kOwn,
               "cu_seqlens_dtype=i64 has_initial_state=false"},
    EngineForm{"fla", "prefill_packed_more", "prefill", kOwn, "cu_seqlens_dtype=i64"},
    EngineForm{"fla", "conv_decode", "conv_decode", kWindows},
    EngineForm{"fla", "decode", "decode", kOwn},

    // As SGLang and vLLM call it on sm_90: a copy of the states in f32, bounds in int64.
    EngineForm{"flashinfer", "prefill", "prefill", kGiven,
               "gate_mode=alpha state_location=dense state_dtype=f32 cu_seqlens_dtype=i64"},
    EngineForm{"flashinfer", "decode", "decode", kSame},
    EngineForm{"flashinfer", "decode_dense", "decode", "state_location=dense"},
    EngineForm{"flashinfer", "verify", "verify", kDrafted, kSame, kDrafts},

    // Norms and gates come before a prefill, but for beta's dtype beside drafts.
    EngineForm{"tensorrt_llm", "conv", "conv", "split_qkv=false"},
    EngineForm{"tensorrt_llm", "prefill", "prefill", kGiven, "cu_seqlens_dtype=i64"},
    EngineForm{"tensorrt_llm", "prefill_beside_drafts", "prefill", kCopied,
               "use_qk_l2norm=false cu_seqlens_dtype=i64", kDrafts},
    EngineForm{"tensorrt_llm", "conv_decode", "conv_decode", "split_qkv=false"},
    EngineForm{"tensorrt_llm", "decode", "decode", "dt_bias_dtype=f32"},
    EngineForm{"tensorrt_llm", "conv_verify", "conv_decode", kWindowOfEach, kSame, kDrafts},
    EngineForm{"tensorrt_llm", "verify", "verify", kDrafted,
               "gate_mode=log gate_dtype=f32 beta_mode=given", kDrafts},

    EngineForm{"tokenspeed", "conv", "conv", "split_qkv=false"},
    EngineForm{"tokenspeed", "prefill", "prefill", kCopied, "state_dtype=f32"},
    EngineForm{"tokenspeed", "conv_decode", "conv_decode", "split_qkv=false"},
    EngineForm{"tokenspeed", "decode", "decode", "dt_bias_dtype=f32"},
    EngineForm{"tokenspeed", "conv_verify", "conv_decode", kWindowOfEach, kSame, kDrafts},
    EngineForm{"tokenspeed", "verify", "verify", kDrafted, "dt_bias_dtype=f32", kDrafts},
};

}  // namespace

std::span<const Engine> known_engines() { return kEngines; }

std::span<const EngineForm> engine_forms() { return kForms; }

}  // namespace cubinery::gdn
