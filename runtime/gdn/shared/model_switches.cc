#include "runtime/gdn/shared/model_switches.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "runtime/gdn/conv/tables.h"

namespace cubinery::gdn {
namespace {

using Names = std::initializer_list<std::string_view>;

// What a switch is called among the fields of convolutions, and of a decode with its own.
struct ConvName {
  std::string_view of_conv;
  std::string_view of_decode;
};
constexpr std::array<ConvName, 7> kConvNames{{{"width", "conv_width"},
                                              {"activation", "conv_activation"},
                                              {"has_bias", "conv_has_bias"},
                                              {"weight_dtype", "conv_weight_dtype"},
                                              {"state_dtype", "conv_state_dtype"},
                                              {"state_layout", "conv_state_layout"},
                                              {"whole_window", "conv_whole_window"}}};
// Of these the states' are called as those of the recurrence.
bool is_shared_name(std::string_view name) {
  return name == "state_dtype" || name == "state_layout";
}

bool is_one_of(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_conv_layout(std::string_view name, std::string_view text) {
  return name == "state_layout" && (text == "columns" || text == "channels");
}

// "width" or "conv_width", as the form calls it; empty: the switch is none of its convolution's.
std::string_view conv_field(std::string_view name, std::string_view text,
                            std::string_view ConvName::*wanted) {
  if (is_conv_layout(name, text)) name = "conv_state_layout";
  for (const ConvName& names : kConvNames) {
    if (name == names.of_decode) return names.*wanted;
    if (name == names.of_conv && !is_shared_name(name)) return names.*wanted;
  }
  return {};
}

// Properties of the recurrence that convolutions have fields for, too; a model's convolutions leave
// norms and gates, all of ConvProblem::inputs, to what comes after them.
bool is_of_recurrence(std::string_view name) {
  if (is_shared_name(name) || name == "stored_states") return true;
  const internal::Table table = internal::table_of<ConvProblem>();
  return std::any_of(table.fields.begin(), table.fields.end(), [name](const auto& field) {
    return name == field.name && std::string_view(field.member_name).starts_with("inputs.");
  });
}

// What each convolution has none of because of what it stands in front of.
bool is_foreign(std::string_view form, std::string_view name) {
  if (form == "conv") return is_one_of({"from_accepted", "accepted_dtype"}, name);
  if (is_one_of({"checkpoints", "checkpoint_every"}, name)) return true;
  return form == "conv_decode" &&
         is_one_of({"varlen", "cu_seqlens_dtype", "from_accepted", "accepted_dtype"}, name);
}

// All that engines keep in the model's dtype.
std::span<const std::string_view> fields_of_dtype(std::string_view form) {
  static constexpr std::array<std::string_view, 3> kOfConv{"dtype", "weight_dtype", "state_dtype"};
  static constexpr std::array<std::string_view, 7> kOfDecode{
      "dtype",         "output_dtype",      "gate_dtype",      "beta_dtype",
      "dt_bias_dtype", "conv_weight_dtype", "conv_state_dtype"};
  if (form.starts_with("conv")) return kOfConv;
  return std::span(kOfDecode).first(form == "decode_with_conv" ? 7 : 5);
}

bool is_f32_of_kimi(std::string_view field) {
  return is_one_of({"dt_bias_dtype", "weight_dtype", "conv_weight_dtype"}, field);
}

}  // namespace

std::string_view field_of(std::string_view form, std::string_view name, std::string_view text) {
  if (form.starts_with("conv")) {
    const std::string_view own = conv_field(name, text, &ConvName::of_conv);
    if (!own.empty()) return own;
    return is_of_recurrence(name) || is_foreign(form, name) ? std::string_view() : name;
  }
  const std::string_view own = conv_field(name, text, &ConvName::of_decode);
  if (own.empty()) return name;
  return form == "decode_with_conv" ? own : std::string_view();
}

Switches fields_of_form(std::string_view form, const Switches& switches, Decay decay) {
  Switches fields;
  if (const auto dtype = switches.find("dtype"); dtype != switches.end()) {
    for (const std::string_view name : fields_of_dtype(form)) {
      if (decay == Decay::kChannel && is_f32_of_kimi(name)) continue;
      fields[std::string(name)] = dtype->second;
    }
  }
  for (const auto& [name, text] : switches) {
    const bool is_read_with_the_model =
        text == kAutoSwitch && (name == "state_dtype" || name == "output_norm");
    const std::string_view field = field_of(form, name, text);
    if (name == "dtype" || is_read_with_the_model || field.empty()) continue;
    fields[std::string(field)] = text;
  }
  return fields;
}

}  // namespace cubinery::gdn
