// The field table of a kernel key: the one list of compile-time parameters that everything else is
// printed from.  Pure functions; safe to call from any thread.
//
// A key is a plain struct (templates/<name>/key.h, seen by host and device).  Its table has each
// member once, in declaration order (templates/<name>/fields.h, host only):
//
//   template <>
//   struct cubinery::Fields<RowScaleKey> {
//     static constexpr const char* kName = "row_scale";     // folder, file, symbol, cache entry
//     using Params = RowScaleParams;                        // the kernel's one parameter
//     static constexpr auto kList = std::tuple{
//         fixed<&RowScaleKey::dtype>(),                     // the caller's problem
//         tuned<&RowScaleKey::threads>(128, 256, 512),      // ours to choose
//     };
//   };
//
// and key.h gives three constexpr functions besides the struct:
//
//   const char* why_invalid(const RowScaleKey&)   // nullptr, or the rule that the key breaks
//   int threads(const RowScaleKey&)               // threads per block
//   int shared_bytes(const RowScaleKey&)          // dynamic shared memory; optional, default 0
//
// A field has the name of its member.  Names are persistent: they are part of kernel identities,
// JSON and results.  A field of a part, a struct that several keys share, is often named apart:
//
//   fixed<&Key::inputs, &Inputs::gate_dtype>()                   // "gate_dtype"
//   fixed<&Key::states, &States::dtype>().named("state_dtype")
//
// The problems that operators are made for have tables too.  There fixed() takes a line of help
// and, where a field does not take every value of its enumeration, those that it takes:
//
//   fixed<&Problem::dtype>("dtype of q, k and v", kFloats)
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cubinery/dtype.h"
#include "cubinery/status.h"

namespace cubinery {
namespace internal {
template <class Member>
struct MemberOf;
template <class C, class T>
struct MemberOf<T C::*> {
  using Class = C;
  using Type = T;
};
}  // namespace internal

// Specialise for each key; see above.
template <class Key>
struct Fields;

// Specialise for each enumeration used as a field: its qualified C++ name and the names of its
// values.  Persistent: `text` is part of kernel identities.
template <class Enum>
struct EnumNames;

template <class Enum>
struct EnumName {
  Enum value;
  const char* enumerator;  // "kBF16"
  const char* text;        // "bf16"
};

// A line of a table: a field that the caller's problem says.
template <auto kMember, class Member = internal::MemberOf<decltype(kMember)>>
constexpr auto fixed(const char* help = "", std::span<const typename Member::Type> accepted = {});

// The same of a part's member.
template <auto kPart, auto kMember, class Part = internal::MemberOf<decltype(kPart)>,
          class Member = internal::MemberOf<decltype(kMember)>>
constexpr auto fixed(const char* help = "", std::span<const typename Member::Type> accepted = {});

// A field that we choose, among `choices`.
template <auto kMember, class... Choices>
constexpr auto tuned(Choices... choices);

// As tuned(), for a field that results depend on to the last bits (the order of a sum, say): with
// batch_invariant an operator uses one value of it whatever the shape.
template <auto kMember, class... Choices>
constexpr auto tuned_bits(Choices... choices);

// One field of one key as text.
struct FieldText {
  std::string_view name;
  std::string value{};        // canonical and JSON: "bf16", "128", "true"
  std::string initializer{};  // C++: "cubinery::DType::kBF16", "128", "true"
  bool quoted = false;        // JSON string, as opposed to a number or a boolean
  bool is_tuned = false;
  bool changes_bits = false;       // always so for fixed fields
  std::string_view member_name{};  // "dtype", "states.dtype"
};

// Views of one key.

template <class Key>
std::vector<FieldText> field_texts(const Key& key);

// {.dtype=cubinery::DType::kF16,.threads=128}, the define CUBINERY_KEY.
template <class Key>
std::string initializer(const Key& key);

// row_scale;dtype=f16;threads=128, for identities, logs and test names.
template <class Key>
std::string canonical(const Key& key);

// {"dtype":"f16","threads":128}, for results and reports.
template <class Key>
std::string to_json(const Key& key);

// The key that `json` describes.  Fields that are missing keep their default, so that a new field
// with a default that means "as before" leaves old text readable.  kInvalidKey: not a flat JSON
// object, an unknown field, a value that the field does not take, or a key outside valid().
template <class Key>
Result<Key> from_json(std::string_view json);

// Calls function(candidate) for every valid choice of the tuned fields, the fixed ones as in `key`;
// the order is that of the table, the last field fastest.
template <class Key, class Function>
void for_each_candidate(Key key, Function&& function);

// Why for_each_candidate() has none: the rule that the key itself breaks, or where its own tuned
// fields are none of the choices, the first candidate.  Empty: it has some.
template <class Key>
std::string why_no_candidate(Key key);

// What a template gets compiled from; `kernel` is the template's folder, file stem and symbol.
struct KernelSpec {
  std::string kernel{};
  std::string canonical{};
  std::string initializer{};
  unsigned threads = 0;         // threads per block
  unsigned shared_bytes = 0;    // dynamic shared memory per block
  std::size_t param_bytes = 0;  // size of the parameter struct
};

// What the runtime needs to know of a key.  kInvalidKey names the rule that the key breaks.
template <class Key>
Result<KernelSpec> spec_of(const Key& key);

// A specification as flat JSON, and back.  What a program prints of a kernel of its own goes into a
// manifest for the command line, {"spec": ..., "arch": "sm_90a"}, which cannot see its field table.
// The JSON ends with a digest of the rest: kernels are cached under `canonical`, and only a field
// table knows which initializer belongs to it.
// kInvalidKey: not such an object, or one that was changed since to_json() printed it.
std::string to_json(const KernelSpec& spec);
Result<KernelSpec> kernel_spec_from_json(std::string_view json);

template <>
struct EnumNames<DType> {
  static constexpr const char* kType = "cubinery::DType";
  static constexpr std::array<EnumName<DType>, 8> kNames{{{DType::kF32, "kF32", "f32"},
                                                          {DType::kBF16, "kBF16", "bf16"},
                                                          {DType::kF16, "kF16", "f16"},
                                                          {DType::kI32, "kI32", "i32"},
                                                          {DType::kI64, "kI64", "i64"},
                                                          {DType::kF8E4M3, "kF8E4M3", "f8e4m3"},
                                                          {DType::kF8E5M2, "kF8E5M2", "f8e5m2"},
                                                          {DType::kBool, "kBool", "bool"}}};
};

// The rest is how it is done.

namespace internal {

// A member of the key, or of a part of it.
template <class Key, class T, class Part = Key>
struct FixedField {
  using Type = T;
  static constexpr bool kTuned = false;
  static constexpr bool changes_bits = true;
  const char* name;
  const char* member_name;  // "dtype", "states.dtype"
  Part Key::*part;          // not used where the member is the key's own
  T Part::*member;
  const char* help;             // for callers who set the field; of problems only
  std::span<const T> accepted;  // of an enumeration; empty: all values

  constexpr FixedField named(const char* other) const {
    FixedField field = *this;
    field.name = other;
    return field;
  }

  constexpr auto& of(auto& key) const {
    if constexpr (std::is_same_v<Part, Key>) {
      return key.*member;
    } else {
      return key.*part.*member;
    }
  }
};

template <class Key, class T, std::size_t kCount>
struct TunedField {
  using Type = T;
  static constexpr bool kTuned = true;
  const char* name;
  T Key::*member;
  std::array<T, kCount> choices;
  bool changes_bits = false;

  constexpr auto& of(auto& key) const { return key.*member; }
};

constexpr std::size_t last_word(const char* text, std::size_t end) {
  while (text[end - 1] != ':') --end;
  return end;
}

// A member's name and a zero, from how compilers print it: "[with auto kMember = &Key::dtype]".
template <auto kMember>
constexpr auto printed_name() {
  constexpr std::size_t kEnd = sizeof(__PRETTY_FUNCTION__) - 2;
  constexpr std::size_t kBegin = last_word(__PRETTY_FUNCTION__, kEnd);
  std::array<char, kEnd - kBegin + 1> name{};
  for (std::size_t i = kBegin; i < kEnd; ++i) name[i - kBegin] = __PRETTY_FUNCTION__[i];
  return name;
}
template <auto kMember>
inline constexpr auto kPrintedName = printed_name<kMember>();

// "states.dtype".
template <auto kPart, auto kMember>
constexpr auto printed_path() {
  constexpr const auto& kFirst = kPrintedName<kPart>;
  constexpr const auto& kLast = kPrintedName<kMember>;
  std::array<char, kFirst.size() + kLast.size()> path{};
  std::copy(kFirst.begin(), kFirst.end(), path.begin());
  path[kFirst.size() - 1] = '.';
  std::copy(kLast.begin(), kLast.end(), path.begin() + kFirst.size());
  return path;
}
template <auto kPart, auto kMember>
inline constexpr auto kPrintedPath = printed_path<kPart, kMember>();

std::string initializer_text(const std::vector<FieldText>& fields);
std::string canonical_text(std::string_view kernel, const std::vector<FieldText>& fields);
std::string json_text(const std::vector<FieldText>& fields);
// A flat JSON object as (name, value text) pairs, in its order.  kInvalidKey: not JSON, not an
// object, a nested value, a name twice, or far larger or deeper than any object of fields.
Result<std::vector<std::pair<std::string, std::string>>> parse_flat_json(std::string_view kernel,
                                                                         std::string_view json);
Status bad_field(std::string_view kernel, std::string_view field, std::string_view value,
                 std::string_view accepted);
// `fields`: those that there are.
Status no_such_field(std::string_view kernel, std::string_view field,
                     const std::vector<FieldText>& fields);

// Converts to any type except an aggregate, to count the members of a struct; those of a part count
// in place of the part.
struct AnyMember {
  template <class T, class = std::enable_if_t<!std::is_aggregate_v<T>>>
  constexpr operator T() const;  // NOLINT(google-explicit-constructor)
};
template <class T, class... Members>
constexpr std::size_t member_count() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; }) {
    return member_count<T, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}

template <class T>
FieldText field_text(std::string_view name, T value, bool is_tuned) {
  if constexpr (std::is_enum_v<T>) {
    for (const EnumName<T>& entry : EnumNames<T>::kNames) {
      if (entry.value == value) {
        std::string qualified = EnumNames<T>::kType;
        qualified.append("::").append(entry.enumerator);
        return {name, entry.text, std::move(qualified), true, is_tuned};
      }
    }
    // A value outside its enumeration: printed as a number, which no parser accepts back.
    return {name, std::to_string(static_cast<long long>(value)).insert(0, 1, '?'), "?", true,
            is_tuned};
  } else if constexpr (std::is_same_v<T, bool>) {
    const char* text = value ? "true" : "false";
    return {name, text, text, false, is_tuned};
  } else {
    static_assert(std::is_integral_v<T>, "a key field is an integer, a bool or an enumeration");
    return {name, std::to_string(value), std::to_string(value), false, is_tuned};
  }
}

template <class T>
bool parse_field(std::string_view text, T* value) {
  if constexpr (std::is_enum_v<T>) {
    for (const EnumName<T>& entry : EnumNames<T>::kNames) {
      if (text == entry.text) return *value = entry.value, true;
    }
    return false;
  } else if constexpr (std::is_same_v<T, bool>) {
    *value = text == "true";
    return text == "true" || text == "false";
  } else {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, *value);
    return error == std::errc() && stop == end;
  }
}

// What a field takes: `accepted`, or every value where that is empty.
template <class T>
bool accepts(std::span<const T> accepted, T value) {
  return accepted.empty() || std::find(accepted.begin(), accepted.end(), value) != accepted.end();
}

// "f32, bf16, f16".
template <class T>
std::string accepted_values(std::span<const T> accepted = {}) {
  if constexpr (std::is_enum_v<T>) {
    std::string text;
    for (const EnumName<T>& entry : EnumNames<T>::kNames) {
      if (!accepts(accepted, entry.value)) continue;
      if (!text.empty()) text += ", ";
      text += entry.text;
    }
    return text;
  } else {
    return std::is_same_v<T, bool> ? "true, false" : "an integer";
  }
}

template <class Key, class Function>
constexpr void for_each_field(Function&& function) {
  std::apply([&](const auto&... field) { (function(field), ...); }, Fields<Key>::kList);
}

template <class Key>
constexpr bool names_differ() {
  return std::apply(
      [](const auto&... field) {
        const std::array<std::string_view, sizeof...(field)> names{field.name...};
        for (std::size_t i = 0; i < names.size(); ++i) {
          for (std::size_t j = 0; j < i; ++j) {
            if (names[i] == names[j]) return false;
          }
        }
        return true;
      },
      Fields<Key>::kList);
}

template <std::size_t kIndex, class Key, class Function>
void enumerate(Key& key, Function&& function) {
  if constexpr (kIndex == std::tuple_size_v<decltype(Fields<Key>::kList)>) {
    if (why_invalid(key) == nullptr) function(std::as_const(key));
  } else {
    constexpr auto kField = std::get<kIndex>(Fields<Key>::kList);
    if constexpr (kField.kTuned) {
      for (const auto& choice : kField.choices) {
        kField.of(key) = choice;
        enumerate<kIndex + 1>(key, function);
      }
    } else {
      enumerate<kIndex + 1>(key, function);
    }
  }
}

}  // namespace internal

template <auto kMember, class Member>
constexpr auto fixed(const char* help, std::span<const typename Member::Type> accepted) {
  constexpr const char* kName = internal::kPrintedName<kMember>.data();
  return internal::FixedField<typename Member::Class, typename Member::Type>{
      kName, kName, nullptr, kMember, help, accepted};
}

template <auto kPart, auto kMember, class Part, class Member>
constexpr auto fixed(const char* help, std::span<const typename Member::Type> accepted) {
  return internal::FixedField<typename Part::Class, typename Member::Type, typename Part::Type>{
      internal::kPrintedName<kMember>.data(),
      internal::kPrintedPath<kPart, kMember>.data(),
      kPart,
      kMember,
      help,
      accepted};
}

template <auto kMember, class... Choices>
constexpr auto tuned(Choices... choices) {
  using Member = internal::MemberOf<decltype(kMember)>;
  using T = typename Member::Type;
  return internal::TunedField<typename Member::Class, T, sizeof...(Choices)>{
      internal::kPrintedName<kMember>.data(), kMember, {static_cast<T>(choices)...}};
}

template <auto kMember, class... Choices>
constexpr auto tuned_bits(Choices... choices) {
  auto field = tuned<kMember>(choices...);
  field.changes_bits = true;
  return field;
}

template <class Key>
std::vector<FieldText> field_texts(const Key& key) {
  static_assert(std::tuple_size_v<decltype(Fields<Key>::kList)> == internal::member_count<Key>(),
                "the field table must list every member of the key");
  static_assert(internal::names_differ<Key>(), "a field table has a name twice");
  std::vector<FieldText> texts{};
  texts.reserve(std::tuple_size_v<decltype(Fields<Key>::kList)>);
  internal::for_each_field<Key>([&](const auto& field) {
    texts.push_back(internal::field_text(field.name, field.of(key), field.kTuned));
    texts.back().changes_bits = field.changes_bits;
    texts.back().member_name = field.name;
    using Field = std::decay_t<decltype(field)>;
    if constexpr (!Field::kTuned) texts.back().member_name = field.member_name;
  });
  return texts;
}

template <class Key>
std::string initializer(const Key& key) {
  return internal::initializer_text(field_texts(key));
}

template <class Key>
std::string canonical(const Key& key) {
  return internal::canonical_text(Fields<Key>::kName, field_texts(key));
}

template <class Key>
std::string to_json(const Key& key) {
  return internal::json_text(field_texts(key));
}

template <class Key>
Result<Key> from_json(std::string_view json) {
  Result<std::vector<std::pair<std::string, std::string>>> pairs =
      internal::parse_flat_json(Fields<Key>::kName, json);
  if (!pairs) return std::move(pairs).error();
  Key key{};
  for (const auto& pair : *pairs) {
    // NOTE: no structured binding, which clang before 16 does not let a lambda see.
    const std::string& name = pair.first;
    const std::string& value = pair.second;
    bool known = false;
    Status status;
    internal::for_each_field<Key>([&](const auto& field) {
      using T = typename std::decay_t<decltype(field)>::Type;
      if (name != field.name) return;
      known = true;
      if (!internal::parse_field(value, &field.of(key))) {
        std::span<const T> accepted{};
        if constexpr (requires { field.accepted; }) accepted = field.accepted;
        status = internal::bad_field(Fields<Key>::kName, name, value,
                                     internal::accepted_values(accepted));
      }
    });
    if (!known) status = internal::no_such_field(Fields<Key>::kName, name, field_texts(key));
    CUBINERY_RETURN_IF_ERROR(std::move(status));
  }
  if (const char* reason = why_invalid(key)) {
    return Status(Code::kInvalidKey, canonical(key) + ": " + reason);
  }
  return key;
}

template <class Key, class Function>
void for_each_candidate(Key key, Function&& function) {
  internal::enumerate<0>(key, function);
}

template <class Key>
std::string why_no_candidate(Key key) {
  bool has_one = false;
  for_each_candidate(key, [&](const Key&) { has_one = true; });
  if (has_one) return {};
  if (why_invalid(key) == nullptr) {
    internal::for_each_field<Key>([&](const auto& field) {
      if constexpr (std::decay_t<decltype(field)>::kTuned) field.of(key) = field.choices.front();
    });
  }
  const char* const reason = why_invalid(key);
  return canonical(key) + ": " + (reason != nullptr ? reason : "no such choice");
}

template <class Key>
Result<KernelSpec> spec_of(const Key& key) {
  if (const char* reason = why_invalid(key)) {
    return Status(Code::kInvalidKey, canonical(key) + ": " + reason);
  }
  const std::vector<FieldText> texts = field_texts(key);
  KernelSpec spec{.kernel = Fields<Key>::kName,
                  .canonical = internal::canonical_text(Fields<Key>::kName, texts),
                  .initializer = internal::initializer_text(texts),
                  .threads = static_cast<unsigned>(threads(key)),
                  .param_bytes = sizeof(typename Fields<Key>::Params)};
  if constexpr (requires { shared_bytes(key); }) {
    spec.shared_bytes = static_cast<unsigned>(shared_bytes(key));
  }
  return spec;
}

}  // namespace cubinery
