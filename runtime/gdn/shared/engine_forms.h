// In which problems each engine needs the operators: one table, as data.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace cubinery::gdn {

struct Engine {
  std::string_view name;
  std::string_view help;
  // The states' dtype where no switch says it: a value of the switch, or what a configuration says.
  std::string_view state_dtype{};
  std::string_view model_dtype_for{};  // a model_type whose states have the model's dtype
};

// What a field of a form has in the place of the model's: a text as in from_json(); or "=v_heads",
// what that field is in the model's decode.
struct FieldSetting {
  std::string_view name;
  std::string_view text;
};
using FieldSettings = std::span<const FieldSetting>;

// One problem.  Persistent: names are those of Python and the command line.
struct EngineForm {
  std::string_view engine;
  std::string_view name;  // of an adapter's function where it begins with kOfFunctions
  std::string_view of;    // the form of a model that it is made from
  std::string_view help;
  FieldSettings first;  // set in this order
  FieldSettings then{};
  bool is_of_drafts = false;  // left out where there are none
};

inline constexpr std::string_view kOfFunctions = "functions.";

// Switches that are the model's alone: forms have what it has, or what the engine has anyway.
inline constexpr std::array<std::string_view, 2> kReadWithTheModel{"dtype", "draft_tokens"};

std::span<const Engine> known_engines();
// Of all engines, those of one behind each other.
std::span<const EngineForm> engine_forms();

}  // namespace cubinery::gdn
