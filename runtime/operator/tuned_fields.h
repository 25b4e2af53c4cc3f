// From the values of a configuration to the tuned fields of a key.  Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/tuning.h"

namespace cubinery {

// Sets every tuned field of `key` to the value that is named `prefix` and the field's name, or the
// field's name alone where kernels share it.  False: one is missing, or the field does not take it.
template <class Key>
bool set_tuned_fields(const std::vector<TunedValue>& values, std::string_view prefix, Key* key) {
  bool is_complete = true;
  internal::for_each_field<Key>([&](const auto& field) {
    if constexpr (std::decay_t<decltype(field)>::kTuned) {
      const std::string own = std::string(prefix).append(field.name);
      const auto is_named = [&](const TunedValue& value) {
        return value.name == own || value.name == field.name;
      };
      const auto found = std::find_if(values.begin(), values.end(), is_named);
      is_complete = is_complete && found != values.end() &&
                    internal::parse_field(found->value, &(key->*field.member));
    }
  });
  return is_complete;
}

// Adds `key` where none with the same tuned values is.  Returns its place.
template <class Key>
std::size_t place_of(const Key& key, std::vector<Key>* keys) {
  const auto same = [&](const Key& other) { return tuned_values(other) == tuned_values(key); };
  const auto found = std::find_if(keys->begin(), keys->end(), same);
  const auto place = static_cast<std::size_t>(found - keys->begin());
  if (found == keys->end()) keys->push_back(key);
  return place;
}

}  // namespace cubinery
