// What the tests of every kernel's key ask.
#pragma once

#include <set>
#include <string>

#include "cubinery/fields.h"
#include "tests/catch.h"
#include "tests/function_ref.h"

namespace cubinery::test {

// The rule that a key breaks when `change` is made to the default key.
template <class Key>
std::string broken_rule(FunctionRef<void(Key&)> change) {
  Key key;
  REQUIRE(why_invalid(key) == nullptr);
  change(key);
  const char* rule = why_invalid(key);
  return rule != nullptr ? rule : "none";
}

// The number of candidates for the fixed fields of `key`, all of which are valid, distinct and
// survive JSON.
template <class Key>
int count_candidates(const Key& key) {
  std::set<std::string> names;
  int count = 0;
  for_each_candidate(key, [&](const Key& candidate) {
    ++count;
    names.insert(canonical(candidate));
    const Result<Key> parsed = from_json<Key>(to_json(candidate));
    if (!valid(candidate) || !parsed || canonical(*parsed) != canonical(candidate)) {
      FAIL(canonical(candidate));
    }
  });
  CHECK(names.size() == static_cast<std::size_t>(count));
  return count;
}

}  // namespace cubinery::test
