#include "runtime/gdn/shared/model_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

Status bad_value(std::string_view name, const Json& value, std::string_view accepted) {
  return invalid_config(fmt::format("{} = {}; accepted: {}", name, json_excerpt(value), accepted));
}

}  // namespace

Status invalid_config(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}

Status no_linear_layer(std::string_view why) {
  return invalid_config(fmt::format(
      "{}: the model has no linear layer; accepted: at least one {} layer", why, kLinearLayer));
}

Result<Json> read_config(std::string_view text) {
  Result<Json> root = read_python_json("", text);
  if (root && !root->is_object()) return invalid_config("accepted: a JSON object");
  return root;
}

ModelConfig::ModelConfig(const Json& root) {
  const Json* text = find_in(root, "text_config");
  if (text != nullptr && text->is_object()) objects_.push_back(text);
  objects_.push_back(&root);
}

Status ModelConfig::check_text_config() const {
  const Json* text = find_in(*objects_.back(), "text_config");
  if (text == nullptr || text->is_object()) return {};
  return bad_value("text_config", *text, "an object");
}

const Json* ModelConfig::find_in(const Json& level, std::string_view name) {
  const auto found = level.find(name);
  return found == level.end() || found->is_null() ? nullptr : &*found;
}

const Json* ModelConfig::find(std::string_view name) const {
  for (const Json* object : objects_) {
    if (const Json* found = find_in(*object, name)) return found;
  }
  return nullptr;
}

Status ModelConfig::read(const char* name, int* value) const {
  const Json* found = find(name);
  if (found == nullptr) return {};
  // No more than a problem may have: sizes are multiplied and divided before it is checked.
  if (!found->is_number_integer() || *found < 1 || *found > kMaxHeads) {
    return bad_value(name, *found, fmt::format("an integer from 1 to {}", kMaxHeads));
  }
  *value = found->get<int>();
  return {};
}

Status ModelConfig::read(const char* name, bool* value) const {
  const Json* found = find(name);
  if (found == nullptr) return {};
  if (!found->is_boolean()) return bad_value(name, *found, "true, false");
  *value = found->get<bool>();
  return {};
}

Status ModelConfig::read(const char* name, std::optional<double>* value) const {
  const auto has_it = [name](const Json* object) { return object->contains(name); };
  const auto object = std::find_if(objects_.begin(), objects_.end(), has_it);
  if (object == objects_.end()) return {};
  const Json& found = (*object)->at(name);
  if (found.is_null()) return value->reset(), Status();
  const double bound = found.is_number() ? found.get<double>() : 0;
  if (!is_lower_bound(bound)) return bad_value(name, found, std::string(kLowerBounds));
  *value = bound;
  return {};
}

Status ModelConfig::read(const char* name, const Json** value) const {
  *value = find(name);
  return *value == nullptr || (*value)->is_object() ? Status()
                                                    : bad_value(name, **value, "an object");
}

Status ModelConfig::read(const char* name, std::string* value) const {
  const Json* found = find(name);
  if (found == nullptr) return {};
  if (!found->is_string()) return bad_value(name, *found, "a string");
  *value = found->get<std::string>();
  return {};
}

Status ModelConfig::read(std::initializer_list<const char*> names, DType* value) const {
  for (const Json* object : objects_) {
    for (const char* name : names) {
      const Json* found = find_in(*object, name);
      if (found == nullptr) continue;
      const std::string text = found->is_string() ? found->get<std::string>() : "";
      if (text == "bfloat16") return *value = DType::kBF16, Status();
      if (text == "float16") return *value = DType::kF16, Status();
      if (text == "float32") return *value = DType::kF32, Status();
      return bad_value(name, *found, "bfloat16, float16, float32");
    }
  }
  return {};
}

Status ModelConfig::read(const char* name, std::vector<std::string>* value) const {
  const Json* found = find(name);
  return found == nullptr ? Status() : read_list(name, *found, value);
}

Status ModelConfig::read_list(const char* name, const Json& list, std::vector<std::string>* value) {
  std::vector<std::string> texts;
  for (const Json& one : list) {
    if (!list.is_array() || !one.is_string()) break;
    texts.push_back(one.get<std::string>());
  }
  if (!list.is_array() || texts.size() != list.size()) {
    return bad_value(name, list, "a list of strings");
  }
  *value = std::move(texts);
  return {};
}

}  // namespace cubinery::gdn
