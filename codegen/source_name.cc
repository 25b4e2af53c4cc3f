#include "codegen/source_name.h"

#include <fmt/format.h>

#include "codegen/cxx_text.h"
#include "codegen/read_json.h"

namespace cubinery {
namespace {

constexpr std::size_t kLongestPlain = 64;
constexpr std::string_view kSourceKey = "source;name=";
constexpr std::string_view kSpillsField = ";allow_spills=";
constexpr std::string_view kOfNvcc = ";compiler=nvcc";
constexpr const char* kAnyName = "kernel";

// Whether a template's argument may have it.  Not: quotation marks, ends of statements and blocks,
// what starts a directive or goes on with a line, and all that is not printed.
bool is_of_argument(char c) {
  return c >= ' ' && c <= '~' &&
         std::string_view(";{}\"'#\\`@$?").find(c) == std::string_view::npos;
}

// Takes an identifier from the front of `rest`; empty: there is none.
std::string_view take_identifier(std::string_view* rest) {
  std::size_t size = 0;
  if (!rest->empty() && is_word_start(rest->front())) {
    while (size < rest->size() && is_word((*rest)[size])) ++size;
  }
  const std::string_view identifier = rest->substr(0, size);
  rest->remove_prefix(size);
  return identifier;
}

// Takes "<...>" from the front, brackets of all sorts in pairs; > and < in parentheses are
// comparisons.  False: it does not end, or has what no argument has.
bool take_arguments(std::string_view* rest) {
  std::string open;
  for (std::size_t i = 0; i < rest->size(); ++i) {
    const char c = (*rest)[i];
    if (!is_of_argument(c)) return false;
    const bool in_angles = open.empty() || open.back() == '>';
    if (c == '(' || c == '[') {
      open += c == '(' ? ')' : ']';
    } else if (c == '<' && in_angles) {
      open += '>';
    } else if (c == ')' || c == ']' || (c == '>' && in_angles)) {
      if (open.empty() || open.back() != c) return false;
      open.pop_back();
    }
    if (!open.empty()) continue;
    rest->remove_prefix(i + 1);
    return true;
  }
  return false;
}

void skip_blanks(std::string_view* rest) {
  while (rest->starts_with(' ')) rest->remove_prefix(1);
}

// The last identifier; empty: it is no name.
std::string_view last_identifier(std::string_view name) {
  if (name.starts_with("::")) name.remove_prefix(2);
  while (true) {
    const std::string_view identifier = take_identifier(&name);
    if (identifier.empty()) return {};
    skip_blanks(&name);
    if (name.starts_with('<') && !take_arguments(&name)) return {};
    if (name.empty()) return identifier;
    if (!name.starts_with("::")) return {};
    name.remove_prefix(2);
  }
}

}  // namespace

Result<std::string> plain_name(std::string_view name) {
  if (name.empty()) return std::string(kAnyName);
  const std::string_view plain = last_identifier(name);
  if (!plain.empty()) return std::string(plain.substr(0, kLongestPlain));
  return Status(Code::kInvalidArgument,
                fmt::format("name is \"{}\"; accepted: that of a __global__ function, \"scale\", "
                            "\"ns::scale\", or of an instance of a template, \"scale<float, 4>\"; "
                            "\"\" for the only one",
                            excerpt(name)));
}

std::string source_key(const KernelSource& source) {
  return fmt::format("{}{}{}{}{}", kSourceKey, source.name, kSpillsField, source.allow_spills,
                     source.compiler == Compiler::kNvcc ? kOfNvcc : "");
}

bool is_source_key(std::string_view key) { return key.starts_with(kSourceKey); }

std::string_view name_in_source_key(std::string_view key) {
  if (!is_source_key(key)) return {};
  key.remove_prefix(kSourceKey.size());
  return key.substr(0, key.find(';'));  // no name has one
}

Compiler compiler_in_key(std::string_view key) {
  return is_source_key(key) && key.ends_with(kOfNvcc) ? Compiler::kNvcc : Compiler::kNvrtc;
}

std::optional<Compiler> compiler_called(std::string_view name) {
  for (const Compiler compiler : {Compiler::kNvrtc, Compiler::kNvcc}) {
    if (name == to_string(compiler)) return compiler;
  }
  return std::nullopt;
}

const char* compiler_text(Compiler compiler) {
  return compiler == Compiler::kNvrtc ? "NVRTC" : to_string(compiler);
}

const char* to_string(Compiler compiler) {
  switch (compiler) {
    case Compiler::kNvrtc:
      return "nvrtc";
    case Compiler::kNvcc:
      return "nvcc";
  }
  return "?";
}

}  // namespace cubinery
