// Spaces, configurations and choices, also those that include/cubinery declares.
#include "results/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "codegen/cxx_text.h"
#include "codegen/source_name.h"
#include "codegen/source_options.h"
#include "cubinery/rung.h"
#include "cubinery/tuning.h"

namespace cubinery {

namespace {

// Which is a number in JSON too.
bool is_integer(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  return !digits.empty() && digits.size() < 19 && (digits == "0" || digits[0] != '0') &&
         digits.find_first_not_of("0123456789") == digits.npos;
}

std::string why_no_space(const KernelSource& source, const std::vector<SourceChoice>& choices) {
  const Result<std::string> name = plain_name(source.name);
  if (!name) return std::string(name.error().message());
  if (source.name.empty()) return "the text has no name, which results are kept under";
  std::set<std::string_view> names;
  for (const SourceChoice& choice : choices) {
    if (!is_identifier(choice.name)) {
      return fmt::format("choice \"{}\"; accepted: the name of a macro", choice.name);
    }
    if (choice.values.empty()) return fmt::format("choice {} has no values", choice.name);
    if (!names.insert(choice.name).second) {
      return fmt::format("the choice {} is there twice", choice.name);
    }
  }
  return choices.empty() ? "there are no choices" : "";
}

// The next combination, the last choice first; false: there is none.
bool advance(const std::vector<SourceChoice>& choices, std::vector<std::size_t>* at) {
  for (std::size_t i = choices.size(); i-- > 0;) {
    if (++(*at)[i] < choices[i].values.size()) return true;
    (*at)[i] = 0;
  }
  return false;
}

// The fields that are not tuned.
std::string problem_of(const KernelSource& source) {
  std::string problem = "name=" + source.name;
  if (!source.options.empty()) problem += fmt::format(";options={}", options_text(source.options));
  return problem;
}

}  // namespace

TuningSpace tuning_space(
    const KernelSource& source, const std::vector<SourceChoice>& choices,
    const std::function<bool(const std::vector<TunedValue>& values)>& is_valid) {
  const Result<std::string> name = plain_name(source.name);
  TuningSpace space{.op = name ? *name : "",
                    .problem = problem_of(source),
                    .configurations = {},
                    .why_empty = why_no_space(source, choices)};
  if (!space.why_empty.empty()) return space;
  std::vector<std::size_t> at(choices.size());
  do {
    Configuration configuration{.values = {}, .kernels = {}, .sources = {source}};
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const auto& [name, values] = choices[i];
      configuration.values.push_back(
          {.name = name, .value = values[at[i]], .is_text = !is_integer(values[at[i]])});
      configuration.sources[0].options.push_back(fmt::format("-D{}={}", name, values[at[i]]));
    }
    if (is_valid && !is_valid(configuration.values)) continue;
    space.configurations.push_back(std::move(configuration));
  } while (advance(choices, &at));
  if (space.configurations.empty()) space.why_empty = "no combination of the choices is valid";
  return space;
}

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
