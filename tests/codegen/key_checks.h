// What the tests of every kernel's key ask.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "cubinery/fields.h"
#include "cubinery/gdn_types.h"
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

// Of the parts that keys of kernels with states share (cubinery/gdn_parts.h).
template <class Key>
void check_part_members() {
  CHECK_PART_MEMBER(Key, "gate_dtype", inputs.gate_dtype, DType::kF16);
  CHECK_PART_MEMBER(Key, "beta_dtype", inputs.beta_dtype, DType::kF16);
  CHECK_PART_MEMBER(Key, "a_log_dtype", inputs.a_log_dtype, DType::kF16);
  CHECK_PART_MEMBER(Key, "dt_bias_dtype", inputs.dt_bias_dtype, DType::kF16);
  CHECK_PART_MEMBER(Key, "state_dtype", states.dtype, DType::kF16);
  CHECK_PART_MEMBER(Key, "index_dtype", states.index_dtype, DType::kI64);
  CHECK_PART_MEMBER(Key, "state_location", states.location, gdn::StateLocation::kPool);
  CHECK_PART_MEMBER(Key, "padding", states.padding, gdn::Padding::kSkip);
  CHECK_PART_MEMBER(Key, "pad_index", states.pad_index, gdn::PadIndex::kZero);
  CHECK_PART_MEMBER(Key, "beta_mode", inputs.beta_mode, gdn::BetaMode::kLogit);
  CHECK_PART_MEMBER(Key, "use_qk_l2norm", inputs.use_qk_l2norm, true);
  CHECK_PART_MEMBER(Key, "has_initial_state", states.has_initial, false);
  CHECK_PART_MEMBER(Key, "store_state", states.store, false);
}

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
