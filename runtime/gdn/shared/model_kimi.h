// What a model's config.json says of its layers of Kimi Delta Attention.
#pragma once

#include <string_view>

#include "cubinery/status.h"
#include "runtime/gdn/shared/model_config.h"
#include "runtime/gdn/shared/model_layers.h"
#include "runtime/gdn/shared/model_types.h"

namespace cubinery::gdn {

// Whether a field is of models with these layers alone.
bool is_kimi_field(std::string_view name);
// Whether models of that family have the field, of those that say what linear layers are.
bool is_read_of_kimi(Family family, std::string_view name);

// Whether read_kimi_layers() and check_kimi_layers(), not layers' intervals, say which there are.
bool lists_kimi_layers(Family family);
// Of a configuration without layer_types: that there are such layers.
Status check_kimi_layers(const ModelConfig& config, Family family);

// Their sizes and decays.  kInvalidArgument: as of read_model_layers().
Status read_kimi_layers(const ModelConfig& config, Family family, ModelLayers* model);

}  // namespace cubinery::gdn
