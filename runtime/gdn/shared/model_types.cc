#include "runtime/gdn/shared/model_types.h"

#include <algorithm>
#include <array>

namespace cubinery::gdn {
namespace {

// Defaults are those of the classes in Hugging Face Transformers 5
// (src/transformers/models/NAME/configuration_NAME.py: Qwen3NextConfig, Qwen3_5TextConfig,
// Qwen3_5MoeTextConfig, Qwen4ExpTextConfig, OlmoHybridConfig); olmo3_5_hybrid is what vLLM calls
// the last (vllm/transformers_utils/configs/olmo3_5_hybrid.py), with the same defaults.
constexpr std::array kTypes{
    ModelType{"qwen3_next", "Qwen3Next", 48},
    ModelType{"qwen3_5", "Qwen3_5", 32},
    ModelType{"qwen3_5_text", "Qwen3_5", 32},
    ModelType{"qwen3_5_moe", "Qwen3_5Moe", 40},
    ModelType{"qwen3_5_moe_text", "Qwen3_5Moe", 40},
    ModelType{"qwen4_exp", "Qwen4Exp", 40},
    ModelType{"qwen4_exp_text", "Qwen4Exp", 40},
    ModelType{"olmo_hybrid", "OlmoHybrid", 32, /*is_olmo=*/true},
    ModelType{"olmo3_5_hybrid", "Olmo3_5Hybrid", 32, /*is_olmo=*/true},
};

// Olmo3Moe has linear_* fields by the names of OLMo-Hybrid's.
constexpr std::array<std::string_view, 3> kKimiTypes{"kimi_linear", "kimi_k3", "olmo3moe"};
constexpr std::array<std::string_view, 3> kKimiArchitectures{"KimiLinear", "KimiK3", "Olmo3Moe"};

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

bool is_kimi_delta_attention(std::string_view name) {
  return std::find(kKimiTypes.begin(), kKimiTypes.end(), name) != kKimiTypes.end() ||
         std::any_of(kKimiArchitectures.begin(), kKimiArchitectures.end(),
                     [name](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace cubinery::gdn
