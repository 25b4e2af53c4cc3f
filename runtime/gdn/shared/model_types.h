// The models that problems_for_model() knows, and what their configurations leave out.
#pragma once

#include <span>
#include <string_view>

namespace cubinery::gdn {

// One class of configurations.
struct ModelType {
  std::string_view name;          // model_type
  std::string_view architecture;  // what names in "architectures" begin with
  int hidden_layers;              // num_hidden_layers where it is not given
  // Twice the sigmoid of beta's logit, heads as many as of attention, dims from the hidden size.
  bool is_olmo = false;
};

std::span<const ModelType> known_model_types();
// Null: not known.
const ModelType* find_model_type(std::string_view name);
// The type whose models an entry of "architectures" names; null: none.
const ModelType* type_of_architecture(std::string_view architecture);
// Whether a model_type, or an entry of "architectures", is of models whose linear layers are Kimi
// Delta Attention.  Some name their fields as Gated DeltaNet's.
bool is_kimi_delta_attention(std::string_view name);

// What all classes but OLMo's have.
inline constexpr int kDefaultKeyHeads = 16;
inline constexpr int kDefaultValueHeads = 32;
inline constexpr int kDefaultHeadDim = 128;
inline constexpr int kDefaultAttentionInterval = 4;
inline constexpr int kDefaultConvWidth = 4;
// OLMo's.
inline constexpr int kOlmoAttentionHeads = 30;
inline constexpr int kOlmoHiddenSize = 3840;

}  // namespace cubinery::gdn
