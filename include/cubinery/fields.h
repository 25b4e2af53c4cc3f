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
//     static constexpr auto kList = field_table(
//         fixed<&RowScaleKey::dtype>(),                     // the caller's problem
//         tuned<&RowScaleKey::threads>(128, 256, 512));     // ours to choose
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

// The table of these lines; of some that several tables have in common, too, which then stand for a
// line: field_table(fixed<&Key::rows>(), shared_fields<Key>(), tuned<&Key::warps>(1, 2, 4)).
template <class First, class... Lines>
constexpr auto field_table(const First& first, const Lines&... lines);

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

// An enumeration's value, as a number.
struct EnumText {
  long long value;
  const char* enumerator;
  const char* text;
};

// A field's type, for the functions that are compiled once for all tables.
struct FieldType {
  std::size_t size;
  bool is_bool;
  bool is_signed;
  const char* name;                  // of an enumeration, qualified; nullptr: it is none
  std::span<const EnumText> values;  // of an enumeration
};

template <class T>
constexpr auto enum_texts() {
  std::array<EnumText, EnumNames<T>::kNames.size()> texts{};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const EnumName<T>& name = EnumNames<T>::kNames[i];
    texts[i] = {static_cast<long long>(name.value), name.enumerator, name.text};
  }
  return texts;
}
template <class T>
inline constexpr auto kEnumTexts = enum_texts<T>();

template <class T>
constexpr FieldType field_type() {
  if constexpr (std::is_enum_v<T>) {
    using Number = std::underlying_type_t<T>;
    return {sizeof(T), false, std::is_signed_v<Number>, EnumNames<T>::kType, kEnumTexts<T>};
  } else {
    static_assert(std::is_integral_v<T>, "a key field is an integer, a bool or an enumeration");
    return {sizeof(T), std::is_same_v<T, bool>, std::is_signed_v<T>, nullptr, {}};
  }
}
template <class T>
inline constexpr FieldType kFieldType = field_type<T>();

// A line of a table.
struct Field {
  const char* name = nullptr;
  const char* member_name = nullptr;  // "dtype", "states.dtype"
  void* (*of)(void* key) = nullptr;   // the member
  const FieldType* type = nullptr;
  const char* help = nullptr;      // for callers who set the field; of problems only
  const void* accepted = nullptr;  // of an enumeration, values of the type
  std::size_t accepted_count = 0;  // 0: all values
  std::size_t choice = 0;          // the first among the table's
  std::size_t choice_count = 0;
  bool is_tuned = false;
  bool changes_bits = true;
};

// Lines of a table, and the choices of those that are tuned.
template <class Key, std::size_t kFields, std::size_t kChoices>
struct FieldTable {
  std::array<Field, kFields> fields{};
  std::array<long long, kChoices> choices{};

  // One line, by another name.
  constexpr FieldTable named(const char* other) const {
    static_assert(kFields == 1);
    FieldTable table = *this;
    table.fields[0].name = other;
    return table;
  }
};

// A whole table, for the functions that are compiled once.
struct Table {
  std::span<const Field> fields;
  const long long* choices;
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

template <auto kMember>
void* member_of(void* key) {
  using Key = typename MemberOf<decltype(kMember)>::Class;
  return &(static_cast<Key*>(key)->*kMember);
}
template <auto kPart, auto kMember>
void* member_of(void* key) {
  return member_of<kMember>(member_of<kPart>(key));
}

// Where the next line of a table goes, and its choices.
struct TableEnd {
  Field* field;
  long long* choice;
  std::size_t choices = 0;

  constexpr void append(std::span<const Field> lines, std::span<const long long> more) {
    for (Field line : lines) {
      line.choice += choices;
      *field++ = line;
    }
    for (const long long value : more) *choice++ = value;
    choices += more.size();
  }
};

template <class Table>
struct TableKey;
template <class Key, std::size_t kFields, std::size_t kChoices>
struct TableKey<FieldTable<Key, kFields, kChoices>> {
  using Type = Key;
  static constexpr std::size_t kFieldCount = kFields;
  static constexpr std::size_t kChoiceCount = kChoices;
};

template <class Key, class... Lines>
constexpr auto joined(const Lines&... lines) {
  static_assert((std::is_same_v<Key, typename TableKey<Lines>::Type> && ...),
                "a field table has a line of another key");
  FieldTable<Key, (std::size_t{0} + ... + TableKey<Lines>::kFieldCount),
             (std::size_t{0} + ... + TableKey<Lines>::kChoiceCount)>
      table{};
  TableEnd end{table.fields.data(), table.choices.data()};
  (end.append(lines.fields, lines.choices), ...);
  return table;
}

// The table of a key: its list, which may also be a std::tuple of lines.
template <class Key, std::size_t kFields, std::size_t kChoices>
constexpr const auto& as_table(const FieldTable<Key, kFields, kChoices>& list) {
  return list;
}
template <class Key, class... Lines>
constexpr auto as_table(const std::tuple<Lines...>& list) {
  return std::apply([](const Lines&... line) { return joined<Key>(line...); }, list);
}
template <class Key>
inline constexpr decltype(auto) kTable = as_table<Key>(Fields<Key>::kList);

// Converts to any type except an aggregate, to count the members of a struct; those of a part count
// in place of the part.
struct AnyMember {
  template <class T, class = std::enable_if_t<!std::is_aggregate_v<T>>>
  constexpr operator T() const;  // NOLINT(google-explicit-constructor)
};
template <std::size_t>
using AnyMemberAt = AnyMember;
template <class T, std::size_t... kAt>
constexpr bool has_members(std::index_sequence<kAt...>) {
  return requires { T{AnyMemberAt<kAt>{}...}; };
}
// Whether a struct has so many.
template <class T, std::size_t kCount>
constexpr bool has_as_many_members() {
  return has_members<T>(std::make_index_sequence<kCount>()) &&
         !has_members<T>(std::make_index_sequence<kCount + 1>());
}

constexpr bool names_differ(std::span<const Field> fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string_view name = fields[i].name;
    for (std::size_t j = 0; j < i; ++j) {
      if (name == fields[j].name) return false;
    }
  }
  return true;
}

template <class Key>
constexpr Table table_of() {
  constexpr const auto& kKeyTable = kTable<Key>;
  using KeyTable = TableKey<std::decay_t<decltype(kKeyTable)>>;
  static_assert(std::is_same_v<Key, typename KeyTable::Type>, "the field table is another key's");
  static_assert(has_as_many_members<Key, KeyTable::kFieldCount>(),
                "the field table must list every member of the key");
  static_assert(names_differ(kKeyTable.fields), "a field table has a name twice");
  return {kKeyTable.fields, kKeyTable.choices.data()};
}

std::string initializer_text(const std::vector<FieldText>& fields);
std::string canonical_text(std::string_view kernel, const std::vector<FieldText>& fields);
std::string json_text(const std::vector<FieldText>& fields);
// What messages about a kernel are made of: the sentence, and behind it the key, which is long.
std::string about_key(std::string_view sentence, std::string_view canonical);
Status key_error(Code code, std::string_view sentence, std::string_view canonical,
                 std::string_view log = {});
// A message about the key without it.
std::string_view without_key(std::string_view message, std::string_view canonical);
// A flat JSON object as (name, value text) pairs, in its order.  kInvalidKey: not JSON, not an
// object, a nested value, a name twice, or far larger or deeper than any object of fields.
Result<std::vector<std::pair<std::string, std::string>>> parse_flat_json(std::string_view kernel,
                                                                         std::string_view json);
Status bad_field(std::string_view kernel, std::string_view field, std::string_view value,
                 std::string_view accepted);
FieldText field_text(std::string_view name, const FieldType& type, const void* value,
                     bool is_tuned);
template <class T>
FieldText field_text(std::string_view name, T value, bool is_tuned) {
  return field_text(name, kFieldType<T>, &value, is_tuned);
}
// False: `value` is as it was.
bool parse_field(std::string_view text, const FieldType& type, void* value);
// The member of `key`, which is not written to.
const void* value_of(const Field& field, const void* key);
// What a field takes: those that are listed, or every value.
bool accepts(const Field& field, long long value);
long long number_of(const FieldType& type, const void* value);
// "f32, bf16, f16"; "true, false"; "an integer".
std::string accepted_values(const Field& field);
// Of the key at `key`.
std::vector<FieldText> field_texts(const Table& table, const void* key);
Status set_fields(std::string_view kernel, const Table& table, std::string_view json, void* key);
// Sets every fixed field of `key` to the field of `source` that has its name and type.
void copy_fields(const Table& from, const void* source, const Table& to, void* key);
bool same_fields(const Table& table, const void* a, const void* b);
void set_first_choices(const Table& table, void* key);

// Steps through the choices of the tuned fields, the last field fastest.
class Choices {
 public:
  // Sets every field to its first choice.
  Choices(const Table& table, void* key);
  // Whether there is a choice for every field.
  bool has_any() const { return has_any_; }
  // Sets the next ones.  False: there are no more.
  bool next();

 private:
  struct Wheel {
    const FieldType* type;
    void* value;
    std::span<const long long> choices;
    std::size_t at = 0;
  };
  std::vector<Wheel> wheels_;
  bool has_any_ = true;
};

}  // namespace internal

template <class First, class... Lines>
constexpr auto field_table(const First& first, const Lines&... lines) {
  return internal::joined<typename internal::TableKey<First>::Type>(first, lines...);
}

template <auto kMember, class Member>
constexpr auto fixed(const char* help, std::span<const typename Member::Type> accepted) {
  constexpr const char* kName = internal::kPrintedName<kMember>.data();
  internal::FieldTable<typename Member::Class, 1, 0> line{};
  line.fields[0] = {kName,
                    kName,
                    internal::member_of<kMember>,
                    &internal::kFieldType<typename Member::Type>,
                    help,
                    accepted.data(),
                    accepted.size()};
  return line;
}

template <auto kPart, auto kMember, class Part, class Member>
constexpr auto fixed(const char* help, std::span<const typename Member::Type> accepted) {
  internal::FieldTable<typename Part::Class, 1, 0> line{};
  line.fields[0] = {internal::kPrintedName<kMember>.data(),
                    internal::kPrintedPath<kPart, kMember>.data(),
                    internal::member_of<kPart, kMember>,
                    &internal::kFieldType<typename Member::Type>,
                    help,
                    accepted.data(),
                    accepted.size()};
  return line;
}

template <auto kMember, class... Choices>
constexpr auto tuned(Choices... choices) {
  using Member = internal::MemberOf<decltype(kMember)>;
  using T = typename Member::Type;
  constexpr const char* kName = internal::kPrintedName<kMember>.data();
  internal::FieldTable<typename Member::Class, 1, sizeof...(Choices)> line{};
  line.fields[0] = {.name = kName,
                    .member_name = kName,
                    .of = internal::member_of<kMember>,
                    .type = &internal::kFieldType<T>,
                    .choice_count = sizeof...(Choices),
                    .is_tuned = true,
                    .changes_bits = false};
  line.choices = {static_cast<long long>(static_cast<T>(choices))...};
  return line;
}

template <auto kMember, class... Choices>
constexpr auto tuned_bits(Choices... choices) {
  auto line = tuned<kMember>(choices...);
  line.fields[0].changes_bits = true;
  return line;
}

template <class Key>
std::vector<FieldText> field_texts(const Key& key) {
  return internal::field_texts(internal::table_of<Key>(), &key);
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
  Key key{};
  CUBINERY_RETURN_IF_ERROR(
      internal::set_fields(Fields<Key>::kName, internal::table_of<Key>(), json, &key));
  if (const char* reason = why_invalid(key)) {
    return internal::key_error(Code::kInvalidKey, reason, canonical(key));
  }
  return key;
}

template <class Key, class Function>
void for_each_candidate(Key key, Function&& function) {
  internal::Choices choices(internal::table_of<Key>(), &key);
  for (bool more = choices.has_any(); more; more = choices.next()) {
    if (why_invalid(key) == nullptr) function(std::as_const(key));
  }
}

template <class Key>
std::string why_no_candidate(Key key) {
  bool has_one = false;
  for_each_candidate(key, [&](const Key&) { has_one = true; });
  if (has_one) return {};
  if (why_invalid(key) == nullptr) internal::set_first_choices(internal::table_of<Key>(), &key);
  const char* const reason = why_invalid(key);
  return internal::about_key(reason != nullptr ? reason : "no such choice", canonical(key));
}

template <class Key>
Result<KernelSpec> spec_of(const Key& key) {
  if (const char* reason = why_invalid(key)) {
    return internal::key_error(Code::kInvalidKey, reason, canonical(key));
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
