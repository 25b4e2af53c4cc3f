// What the tests of every kernel's key ask.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "cubinery/fields.h"
#include "tests/catch.h"

namespace cubinery::test {

// The names of the fields in which `key` differs from the default one.
template <class Key>
std::string changed_fields(const Key& key) {
  const std::vector<FieldText> before = field_texts(Key{});
  const std::vector<FieldText> after = field_texts(key);
  std::string names;
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i].value != before[i].value)
      names.append(names.empty() ? 0 : 1, ' ') += after[i].name;
  }
  return names;
}

// A table entry with the name of one member and the pointer of another would compile a wrong
// kernel.
#define CHECK_PART_MEMBER(Key, name, member, other)             \
  do {                                                          \
    Key changed_key;                                            \
    changed_key.member = other;                                 \
    CHECK(cubinery::test::changed_fields(changed_key) == name); \
  } while (false)
#define CHECK_MEMBER(Key, member, other) CHECK_PART_MEMBER(Key, #member, member, other)

// The rule that a key breaks when `change` is made to the default key.
template <class Key>
std::string broken_rule(const std::function<void(Key&)>& change) {
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
