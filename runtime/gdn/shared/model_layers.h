// What a model's config.json says of its layers of Gated DeltaNet or Kimi Delta Attention.
#pragma once

#include <string_view>

#include "codegen/read_json.h"
#include "cubinery/gdn_models.h"

namespace cubinery::gdn {

struct ModelLayers {
  std::string_view type{};  // a model_type; empty: the configuration names none
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int conv_width = 0;
  Decay decay = Decay::kHead;                      // kChannel: Kimi Delta Attention
  GateMode gate_mode = GateMode::kComputed;        // or kLowerBound
  bool doubles_beta = false;                       // beta is twice the sigmoid of its logit
  OutputNorm output_norm = OutputNorm::kGatedRms;  // that comes behind the recurrence
  DType dtype = DType::kBF16;
  DType state_dtype = DType::kF32;
};

// kInvalidArgument: a field that cannot be used, a model that is not known, or one whose linear
// layers are something else.
Result<ModelLayers> read_model_layers(const Json& config, const ModelOptions& options);

}  // namespace cubinery::gdn
