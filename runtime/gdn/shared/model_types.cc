#include "runtime/gdn/shared/model_types.h"

#include <algorithm>
#include <array>

namespace cubinery::gdn {
namespace {

// Defaults are those of the classes in Hugging Face Transformers 5
// (src/transformers/models/NAME/configuration_NAME.py: Qwen3NextConfig, Qwen3_5TextConfig,
// Qwen3_5MoeTextConfig, Qwen4ExpTextConfig, OlmoHybridConfig); olmo3_5_hybrid is what vLLM calls
// the last (vllm/transformers_utils/configs/olmo3_5_hybrid.py), with the same defaults.  Likewise
// KimiLinearConfig, Glm5NextTextConfig and BailingHybridConfig; vLLM has KimiK3Config, whose text
// is a KimiLinearConfig, BailingMoeV3VLConfig, and AliceAIConfig, a Qwen3NextConfig.
constexpr std::array kTypes{
    ModelType{"qwen3_next", "Qwen3Next", 48},
    ModelType{"qwen3_5", "Qwen3_5", 32},
    ModelType{"qwen3_5_text", "Qwen3_5", 32},
    ModelType{"qwen3_5_moe", "Qwen3_5Moe", 40},
    ModelType{"qwen3_5_moe_text", "Qwen3_5Moe", 40},
    ModelType{"qwen4_exp", "Qwen4Exp", 40},
    ModelType{"qwen4_exp_text", "Qwen4Exp", 40},
    ModelType{"olmo_hybrid", "OlmoHybrid", 32, Family::kOlmo},
    ModelType{"olmo3_5_hybrid", "Olmo3_5Hybrid", 32, Family::kOlmo},
    ModelType{"kimi_linear", "KimiLinear", 27, Family::kKimi},
    ModelType{"kimi_k3", "KimiK3", 27, Family::kKimi},
    ModelType{"glm5_next", "Glm5Next", 45, Family::kGlm},
    ModelType{"glm5_next_text", "Glm5Next", 45, Family::kGlm},
    ModelType{"bailing_hybrid", "BailingHybrid", 42, Family::kLing},
    ModelType{"bailing_moe_v3_vl", "BailingMoeV3", 42, Family::kLing},
    ModelType{"alice_ai", "AliceAI", 48, Family::kAlice},
};

}  // namespace

std::span<const ModelType> known_model_types() { return kTypes; }

const ModelType* find_model_type(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [name](const ModelType& type) { return type.name == name; });
  return found == kTypes.end() ? nullptr : &*found;
}

const ModelType* type_of_architecture(std::string_view architecture) {
  const ModelType* longest = nullptr;
  for (const ModelType& type : kTypes) {
    if (!architecture.starts_with(type.architecture)) continue;
    if (longest == nullptr || longest->architecture.size() < type.architecture.size()) {
      longest = &type;
    }
  }
  return longest;
}

bool is_unknown_kimi(std::string_view name) {
  return name == "olmo3moe" || name.starts_with("Olmo3Moe");
}

}  // namespace cubinery::gdn
