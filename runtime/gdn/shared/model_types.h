// The models that problems_for_model() knows, and what their configurations leave out.
#pragma once

#include <span>
#include <string_view>

namespace cubinery::gdn {

// Classes of configurations that are read alike.
enum class Family {
  kQwen,
  kOlmo,  // beta is twice the sigmoid of its logit, dims come from the hidden size
  kKimi,  // Kimi Delta Attention, as all below
  kGlm,
  kLing,
  kAlice,  // sizes as Qwen's
};
constexpr bool has_kimi_layers(Family family) { return family >= Family::kKimi; }

// One class of configurations.
struct ModelType {
  std::string_view name;          // model_type
  std::string_view architecture;  // what names in "architectures" begin with
  int hidden_layers;              // num_hidden_layers where it is not given
  Family family = Family::kQwen;
};

std::span<const ModelType> known_model_types();
// Null: not known.
const ModelType* find_model_type(std::string_view name);
// The type whose models an entry of "architectures" names; null: none.
const ModelType* type_of_architecture(std::string_view architecture);
// Whether a model_type, or an entry of "architectures", is of models that have Kimi Delta
// Attention, are not known, and name their fields as Gated DeltaNet's.
bool is_unknown_kimi(std::string_view name);

// What all classes but OLMo's have.
inline constexpr int kDefaultKeyHeads = 16;
inline constexpr int kDefaultValueHeads = 32;
inline constexpr int kDefaultHeadDim = 128;
inline constexpr int kDefaultAttentionInterval = 4;
inline constexpr int kDefaultConvWidth = 4;
inline constexpr int kDefaultKimiHeads = 32;
// GLM's.
inline constexpr int kGlmKimiHeads = 64;
inline constexpr double kGlmLowerBound = -5;
// Ling's.
inline constexpr int kLingGroupSize = 6;
inline constexpr double kLingLowerBound = -5;
// OLMo's.
inline constexpr int kOlmoAttentionHeads = 30;
inline constexpr int kOlmoHiddenSize = 3840;

}  // namespace cubinery::gdn
