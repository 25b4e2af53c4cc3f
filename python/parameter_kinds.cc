#include "parameter_kinds.h"

#include <optional>

namespace cubinery_python {
namespace {

using Kind = ParameterKind;

struct Type {
  Kind kind = Kind::kUnknown;
  std::size_t bytes = 0;  // 0: not known
};

std::optional<Type> builtin(char letter) {
  switch (letter) {
    case 'v':
    case 'z':
    case 'n':
    case 'o':
    case 'e':
    case 'g':
      return Type{};
    case 'b':
      return Type{Kind::kBool, 1};
    case 'c':
      return Type{Kind::kCharacter, 1};
    case 'a':
      return Type{Kind::kSigned, 1};
    case 'h':
      return Type{Kind::kUnsigned, 1};
    case 's':
      return Type{Kind::kSigned, 2};
    case 't':
      return Type{Kind::kUnsigned, 2};
    case 'i':
    case 'w':
      return Type{Kind::kSigned, 4};
    case 'j':
      return Type{Kind::kUnsigned, 4};
    case 'l':
    case 'x':
      return Type{Kind::kSigned, 8};
    case 'm':
    case 'y':
      return Type{Kind::kUnsigned, 8};
    case 'f':
      return Type{Kind::kFloat, 4};
    case 'd':
      return Type{Kind::kFloat, 8};
    default:
      return std::nullopt;
  }
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Reads from the front of a symbol.  Every method returns false where it meets what it does not
// know, and is then of no more use.
class SymbolReader {
 public:
  explicit SymbolReader(std::string_view symbol) : rest_(symbol) {}

  bool at_end() const { return rest_.empty(); }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  // The function's name, and of an instance of a template its type of result.
  bool function() {
    bool is_instance = false;
    const bool read = take("N") ? function_in_scopes(&is_instance) : function_alone(&is_instance);
    return read && (!is_instance || take("v"));
  }

  bool type(Type* type, int depth = 0) {
    constexpr int kDeepest = 40;
    if (depth > kDeepest || rest_.empty()) return false;
    *type = {};
    const char first = rest_.front();
    if (const std::optional<Type> found = builtin(first)) {
      rest_.remove_prefix(1);
      *type = *found;
      return true;
    }
    if (first == 'P') return pointer(type, depth);
    if (first == 'K' || first == 'V' || first == 'r') return qualified(type, depth);
    if (first == 'S') return substitution(type);
    if (first == 'T') return template_parameter(type);
    return is_digit(first) && class_type(type, depth);
  }

 private:
  bool number(std::size_t* value) {
    constexpr std::size_t kMost = 100'000;
    if (rest_.empty() || !is_digit(rest_.front())) return false;
    for (*value = 0; !rest_.empty() && is_digit(rest_.front()); rest_.remove_prefix(1)) {
      *value = 10 * *value + static_cast<std::size_t>(rest_.front() - '0');
      if (*value > kMost) return false;
    }
    return true;
  }

  // "5scale"
  bool name(std::string_view* text) {
    std::size_t length = 0;
    if (!number(&length) || length > rest_.size()) return false;
    *text = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return true;
  }

  // "_": 0, "0_": 1, "A_": 11
  bool sequence(bool has_letters, std::size_t* value) {
    constexpr std::size_t kMost = 10'000;
    if (take("_")) return *value = 0, true;
    for (*value = 0; !rest_.empty() && !rest_.starts_with('_'); rest_.remove_prefix(1)) {
      const char letter = rest_.front();
      const bool is_letter = has_letters && letter >= 'A' && letter <= 'Z';
      if (!is_digit(letter) && !is_letter) return false;
      const int digit = is_letter ? letter - 'A' + 10 : letter - '0';
      *value = (has_letters ? 36 : 10) * *value + static_cast<std::size_t>(digit);
      if (*value > kMost) return false;
    }
    ++*value;
    return take("_");
  }

  bool function_alone(bool* is_instance) {
    take("L");  // static
    std::string_view text;
    if (!name(&text)) return false;
    *is_instance = rest_.starts_with('I');
    if (!*is_instance) return true;
    substitutions_.push_back({});  // the template
    return template_arguments(&arguments_, 0);
  }

  // All but the last name may be named again; of an instance that one too.
  bool function_in_scopes(bool* is_instance) {
    for (;;) {
      std::string_view text;
      take("L");
      if (!name(&text)) return false;
      if (take("E")) return true;
      substitutions_.push_back({});
      if (!rest_.starts_with('I')) continue;
      *is_instance = true;
      return template_arguments(&arguments_, 0) && take("E");
    }
  }

  // Types and numbers.
  bool template_arguments(std::vector<Type>* arguments, int depth) {
    if (!take("I")) return false;
    while (!take("E")) {
      Type argument;
      const bool is_value = take("L");
      if (!type(&argument, depth + 1)) return false;
      arguments->push_back(is_value ? Type{} : argument);
      if (!is_value) continue;
      take("n");
      while (!rest_.empty() && is_digit(rest_.front())) rest_.remove_prefix(1);
      if (!take("E")) return false;
    }
    return true;
  }

  bool pointer(Type* type, int depth) {
    rest_.remove_prefix(1);
    Type to;
    if (!this->type(&to, depth + 1)) return false;
    *type = {Kind::kPointer, sizeof(void*)};
    substitutions_.push_back(*type);
    return true;
  }

  // As the type without; all qualifiers in a row are one.
  bool qualified(Type* type, int depth) {
    while (take("r") || take("V") || take("K")) {
    }
    if (!this->type(type, depth + 1)) return false;
    substitutions_.push_back(*type);
    return true;
  }

  bool substitution(Type* type) {
    rest_.remove_prefix(1);
    std::size_t index = 0;
    if (!sequence(/*has_letters=*/true, &index) || index >= substitutions_.size()) return false;
    *type = substitutions_[index];
    return !rest_.starts_with('I');
  }

  bool template_parameter(Type* type) {
    rest_.remove_prefix(1);
    std::size_t index = 0;
    if (!sequence(/*has_letters=*/false, &index) || index >= arguments_.size()) return false;
    *type = arguments_[index];
    substitutions_.push_back(*type);
    return !rest_.starts_with('I');
  }

  bool class_type(Type* type, int depth) {
    std::string_view text;
    if (!name(&text)) return false;
    const bool is_number = text.starts_with("__half") || text.starts_with("__nv_");
    *type = {is_number ? Kind::kCudaNumber : Kind::kUnknown, 0};
    substitutions_.push_back(*type);
    if (!rest_.starts_with('I')) return true;
    std::vector<Type> arguments;
    if (!template_arguments(&arguments, depth)) return false;
    *type = {};
    substitutions_.push_back(*type);
    return true;
  }

  std::string_view rest_;
  std::vector<Type> substitutions_;  // what "S_", "S0_"... stand for
  std::vector<Type> arguments_;      // of the function, a template's instance: "T_", "T0_"...
};

}  // namespace

std::vector<Kind> kinds_of(std::string_view symbol, std::span<const std::size_t> bytes) {
  std::vector<Kind> kinds(bytes.size(), Kind::kUnknown);
  SymbolReader reader(symbol);
  if (!reader.take("_Z") || !reader.function()) return kinds;
  for (std::size_t i = 0; !reader.at_end(); ++i) {
    Type type;
    if (!reader.type(&type)) break;
    const bool fits = i < bytes.size() && (type.bytes == 0 || type.bytes == bytes[i]);
    // Not what the cubin says: nothing that was read holds.
    if (!fits) return std::vector<Kind>(bytes.size(), Kind::kUnknown);
    kinds[i] = type.kind;
  }
  return kinds;
}

}  // namespace cubinery_python
