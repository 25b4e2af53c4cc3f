// The fields of a model's config.json, each read by its name.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/read_json.h"
#include "cubinery/dtype.h"
#include "cubinery/status.h"

namespace cubinery::gdn {

Status invalid_config(std::string message);

// Whether a list of names has it.
template <class Names>
bool is_in(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// As layer_types has it.
inline constexpr std::string_view kLinearLayer = "linear_attention";
// "full_attention_interval = 1: the model has no linear layer; ..."
Status no_linear_layer(std::string_view why);

// The text of a config.json, an object.  kInvalidArgument: it is none.
Result<Json> read_config(std::string_view text);

// Fields are looked up under "text_config" first, then at the top.  Null is no value.
//
// kInvalidArgument of all that read: another type or value, which the message names with what is
// accepted.  A field that is not there leaves *value as it is.
class ModelConfig {
 public:
  // The object outlives this one.
  explicit ModelConfig(const Json& root);

  Status check_text_config() const;

  // Null: it is not there.
  const Json* find(std::string_view name) const;
  // The same of `level` alone: those of objects(), from the innermost.
  static const Json* find_in(const Json& level, std::string_view name);
  // "text_config", where there is one, and the top.
  std::span<const Json* const> objects() const { return objects_; }

  // 1 to as many as a problem has heads.
  Status read(const char* name, int* value) const;
  Status read(const char* name, bool* value) const;
  // A lower bound.  A field that is null takes the value away.
  Status read(const char* name, std::optional<double>* value) const;
  Status read(const char* name, std::string* value) const;
  // The first that is there of `names`, inner ones before outer ones.
  Status read(std::initializer_list<const char*> names, DType* value) const;
  // A list of strings.
  Status read(const char* name, std::vector<std::string>* value) const;
  static Status read_list(const char* name, const Json& list, std::vector<std::string>* value);
  // An object; null: it is not there.
  Status read(const char* name, const Json** value) const;

 private:
  std::vector<const Json*> objects_;
};

}  // namespace cubinery::gdn
