#include "codegen/include_macros.h"

#include <algorithm>

#include "codegen/cxx_text.h"

namespace cubinery {
namespace {

constexpr int kMaxDepth = 16;
constexpr int kMaxSteps = 10'000;  // of one expansion: definitions of definitions multiply

// The parts between the commas of text that begins with a parenthesis, and the text behind its
// partner; nullopt: it has none.  Commas and parentheses in inner ones are not looked at.
struct Arguments {
  std::vector<std::string_view> list;
  std::string_view behind;
};
std::optional<Arguments> arguments_of(std::string_view text) {
  Arguments arguments;
  std::size_t depth = 0;
  std::size_t begin = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if ((c == ',' && depth == 1) || depth == 0) {
      arguments.list.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
    if (depth == 0) {
      arguments.behind = text.substr(i + 1);
      return arguments;
    }
  }
  return std::nullopt;
}

// The body of a function-like macro with its arguments in their places.
std::string substituted(std::string_view body, const std::vector<std::string_view>& parameters,
                        const std::vector<std::string_view>& arguments) {
  std::string text;
  while (!body.empty()) {
    const std::string_view word = first_word(body);
    const std::string_view part = word.empty() ? body.substr(0, 1) : word;
    const auto parameter = std::find(parameters.begin(), parameters.end(), part);
    const auto index = static_cast<std::size_t>(parameter - parameters.begin());
    text += index < arguments.size() ? arguments[index] : part;
    body.remove_prefix(part.size());
  }
  return text;
}

}  // namespace

// One call of expand().
class IncludeMacros::Expansion {
 public:
  explicit Expansion(const IncludeMacros& macros) : macros_(macros) {}

  // False: what expand() says with nullopt.
  bool add(std::string_view text, int depth) {
    text = trimmed(text);
    if (text.empty() || depth > kMaxDepth || ++steps_ > kMaxSteps) return false;
    if (text.front() == '"') {
      const std::optional<HeaderName> name = header_name(text, 0);
      return name && name->length == text.size() && note(std::string(name->name), true);
    }
    if (text.front() == '<') {
      if (text.back() != '>') return false;
      std::vector<std::string> all;
      if (!inside(text.substr(1, text.size() - 2), depth, &all)) return false;
      return std::all_of(all.begin(), all.end(),
                         [&](std::string& name) { return note(std::move(name), false); });
    }
    return add_macro(text, depth);
  }

  std::vector<Candidate> take() { return std::move(names_); }

 private:
  bool note(std::string name, bool is_quoted) {
    Candidate candidate{std::move(name), is_quoted};
    if (std::find(names_.begin(), names_.end(), candidate) == names_.end()) {
      names_.push_back(std::move(candidate));
    }
    return names_.size() <= kMaxCandidates;
  }

  bool add_macro(std::string_view text, int depth) {
    const std::string_view name = first_word(text);
    const std::vector<Definition>& definitions = macros_.definitions_of(name);
    if (name.empty() || definitions.empty()) return false;
    const std::string_view behind = without_blanks(text.substr(name.size()));
    for (const Definition& definition : definitions) {
      std::string value(definition.body);
      std::string_view rest = behind;
      if (definition.is_function) {
        if (!behind.starts_with('(')) return false;
        const std::optional<Arguments> arguments = arguments_of(behind);
        if (!arguments || definition.body.find('#') != definition.body.npos) return false;
        value = substituted(definition.body, definition.parameters, arguments->list);
        rest = arguments->behind;
      }
      value += ' ';
      value += rest;
      if (!add(value, depth + 1)) return false;
    }
    return true;
  }

  // All that what is between angle brackets can expand to.
  bool inside(std::string_view text, int depth, std::vector<std::string>* all) {
    *all = {""};
    if (depth > kMaxDepth || ++steps_ > kMaxSteps) return false;
    if (text.find('#') != text.npos) return false;
    while (!text.empty()) {
      const std::string_view word = first_word(text);
      const std::string_view part = word.empty() ? text.substr(0, 1) : word;
      text.remove_prefix(part.size());
      std::vector<std::string> values;
      if (!values_of(part, text, depth, &values)) return false;
      std::vector<std::string> longer;
      for (const std::string& before : *all) {
        for (const std::string& value : values) longer.push_back(before + value);
      }
      if (longer.size() > kMaxCandidates) return false;
      *all = std::move(longer);
    }
    return true;
  }

  // Of a word, itself among them, and of any other character.
  bool values_of(std::string_view part, std::string_view behind, int depth,
                 std::vector<std::string>* values) {
    values->emplace_back(part);
    if (!is_word(part.front())) return true;
    for (const Definition& definition : macros_.definitions_of(part)) {
      if (definition.is_function) {
        if (without_blanks(behind).starts_with('(')) return false;
        continue;
      }
      if (definition.body == part) continue;
      std::vector<std::string> inner;
      if (!inside(definition.body, depth + 1, &inner)) return false;
      for (std::string& value : inner) {
        if (std::find(values->begin(), values->end(), value) == values->end()) {
          values->push_back(std::move(value));
        }
      }
    }
    return true;
  }

  const IncludeMacros& macros_;
  std::vector<Candidate> names_;
  int steps_ = 0;
};

void IncludeMacros::define(std::string_view text) {
  const std::string_view name = first_word(text);
  known_.push_back({std::hash<std::string_view>()(name), name, text.substr(name.size())});
  asked_.clear();
}

std::optional<IncludeMacros::Definition> IncludeMacros::parsed(std::string_view behind_name) {
  Definition definition;
  if (behind_name.starts_with('(')) {
    const std::optional<Arguments> parameters = arguments_of(behind_name);
    if (!parameters) return std::nullopt;
    definition.is_function = true;
    definition.parameters = parameters->list;
    behind_name = parameters->behind;
  }
  definition.body = trimmed(behind_name);
  return definition;
}

const std::vector<IncludeMacros::Definition>& IncludeMacros::definitions_of(
    std::string_view name) const {
  const auto [asked, is_new] = asked_.try_emplace(std::string(name));
  if (!is_new) return asked->second;
  const std::size_t hash = std::hash<std::string_view>()(name);
  for (const Known& known : known_) {
    if (known.hash != hash || known.name != name) continue;
    if (std::optional<Definition> definition = parsed(known.behind)) {
      asked->second.push_back(*std::move(definition));
    }
  }
  return asked->second;
}

void IncludeMacros::add(const Directives& directives, std::string_view text) {
  for (const Directive& directive : directives.list()) {
    if (directive.kind != Directive::Kind::kDefine) continue;
    const std::string_view body = directives.body(directive, text);
    define(without_blanks(body.substr(first_word(body).size())));
  }
}

void IncludeMacros::add_options(const std::vector<std::string>& options) {
  for (std::size_t i = 0; i < options.size(); ++i) {
    std::string_view option = options[i];
    bool is_definition = false;
    for (const std::string_view name : {"-D", "--define-macro"}) {
      if (!option.starts_with(name)) continue;
      option.remove_prefix(name.size());
      if (option.empty() && i + 1 < options.size()) option = options[++i];
      if (option.starts_with('=')) option.remove_prefix(1);
      is_definition = true;
      break;
    }
    if (!is_definition) continue;
    std::string text(trimmed(option));
    const std::size_t equals = text.find('=');
    if (equals == text.npos) {
      text += " 1";
    } else {
      text[equals] = ' ';
    }
    own_.push_back(std::make_unique<const std::string>(std::move(text)));
    define(*own_.back());
  }
}

std::optional<std::vector<IncludeMacros::Candidate>> IncludeMacros::expand(
    std::string_view text) const {
  Expansion expansion(*this);
  if (!expansion.add(text, 0)) return std::nullopt;
  return expansion.take();
}

}  // namespace cubinery
