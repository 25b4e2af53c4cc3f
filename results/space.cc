// Spaces, configurations and choices, also those that include/cubinery declares.
#include "results/space.h"

#include <fmt/format.h>

#include <algorithm>

#include "cubinery/rung.h"
#include "cubinery/tuning.h"

namespace cubinery {

std::vector<TunedValue> internal::tuned_values(const Table& table, const void* key) {
  std::vector<TunedValue> values;
  for (const Field& field : table.fields) {
    if (!field.is_tuned) continue;
    FieldText text = field_text(field.name, *field.type, value_of(field, key), true);
    values.push_back({field.name, std::move(text.value), text.quoted, field.changes_bits});
  }
  return values;
}

std::string to_text(const std::vector<TunedValue>& values) {
  std::string text;
  for (const TunedValue& value : values) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", value.name, value.value);
  }
  return text;
}

std::string_view path_of(const std::vector<TunedValue>& values) {
  const bool has_path = !values.empty() && values.front().name == kPath;
  return has_path ? std::string_view(values.front().value) : std::string_view();
}

std::size_t index_of(const TuningSpace& space, const std::vector<TunedValue>& values) {
  // Not what the fields declare besides: a record may be older than a declaration.
  const auto same = [](const TunedValue& a, const TunedValue& b) {
    return a.name == b.name && a.value == b.value;
  };
  const auto found =
      std::find_if(space.configurations.begin(), space.configurations.end(),
                   [&](const Configuration& configuration) {
                     return std::equal(configuration.values.begin(), configuration.values.end(),
                                       values.begin(), values.end(), same);
                   });
  return static_cast<std::size_t>(found - space.configurations.begin());
}

std::vector<TunedValue> bits_of(std::vector<TunedValue> values) {
  std::erase_if(values, [](const TunedValue& value) { return !value.changes_bits; });
  return values;
}

const char* to_string(Rung rung) {
  switch (rung) {
    case Rung::kExact:
      return "exact";
    case Rung::kNearestShape:
      return "nearest shape";
    case Rung::kSimilarProblem:
      return "similar problem";
    case Rung::kSameArch:
      return "same architecture";
    case Rung::kStale:
      return "stale";
    case Rung::kDefault:
      return "default";
  }
  return "unknown";
}

}  // namespace cubinery
