// The switches of a model, each one property of it, and the fields of its forms that they set.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "codegen/read_json.h"
#include "cubinery/gdn_models.h"

namespace cubinery::gdn {

// Names and values as texts.
using Switches = std::map<std::string, std::string>;

// What state_dtype and output_norm take besides their values: as the model has it.
inline constexpr std::string_view kAutoSwitch = "auto";

// The field of the form's problem that a switch sets to `text`; empty: the form has no such
// property.  A problem need not have the field.
std::string_view field_of(std::string_view form, std::string_view name, std::string_view text);

// What the switches make of the fields of one form's problem.  A form without the property has no
// entry for it; there may be entries that its problem has no field for.  A switch that is more
// particular goes before `dtype`, whatever their order.  `decay`: of the form's problem; engines
// keep more of Kimi Delta Attention in f32 whatever the model's dtype.
Switches fields_of_form(std::string_view form, const Switches& switches, Decay decay);

// Sets those that are fields of the problem; kInvalidArgument of from_json().
template <class P>
Status set_fields(const Switches& fields, P* problem) {
  Json all = *read_json("", problem->to_json());
  for (const auto& [name, text] : fields) {
    if (all.contains(name)) all[name] = text;
  }
  Result<P> changed = P::from_json(all.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!changed) return std::move(changed).error();
  *problem = *std::move(changed);
  return {};
}
template <class P>
Status set_field(const std::string& name, const std::string& text, P* problem) {
  return set_fields({{name, text}}, problem);
}

}  // namespace cubinery::gdn
