// In which problems each engine needs the operators: one table, as data.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/gdn/shared/model_types.h"

namespace cubinery::gdn {

inline constexpr std::string_view kEveryModel = "*";

struct Engine {
  std::string_view name;
  // Values of switches that nobody sets: what a configuration says of states (problems_for_model())
  // where it is empty, and of the norm that is in the recurrence's launch where kernels do that.
  std::string_view state_dtype{};
  std::string_view output_norm{};
  // A model_type whose states have the model's dtype whatever it says, and whose norm is alone; or
  // kEveryModel.
  std::string_view apart{};
  // Models with Kimi Delta Attention that it serves by its own kernels alone.
  std::optional<Family> left{};
};

// Whether models with Kimi Delta Attention have a form, too: never, where the gate has a lower
// bound, or always.
enum class OfKimi { kNever, kBounded, kAlways };

// One problem.  Persistent: names are those of Python and the command line.
struct EngineForm {
  std::string_view engine;
  std::string_view name;  // of an adapter's functions where it begins with kOfFunctions
  std::string_view of;    // the form of a model that it is made from
  // Fields that differ from that: "name=value" with a space between them, values as in from_json();
  // "name=@" what the model's decode has, "name=@other" what that has in another field.  Of Kimi
  // Delta Attention these stay the model's: the recurrence is given what the projections give.
  std::string_view fields;
  std::string_view more{};        // of every model, set behind these
  bool is_of_drafts = false;      // left out where there are none
  std::string_view instead_of{};  // a form without kernels on some GPUs: there this one is launched
  OfKimi of_kimi = OfKimi::kNever;
};

inline constexpr std::string_view kOfFunctions = "functions.";

// Switches that are the model's alone: forms have what it has, or what the engine has anyway.
inline constexpr std::array<std::string_view, 2> kReadWithTheModel{"dtype", "draft_tokens"};

std::span<const Engine> known_engines();
// Of all engines, those of one behind each other.
std::span<const EngineForm> engine_forms();

}  // namespace cubinery::gdn
