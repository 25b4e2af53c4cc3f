#include "codegen/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "codegen/identity.h"

namespace cubinery {
namespace {

std::string_view without_blanks(std::string_view text) {
  return text.substr(std::min(text.size(), text.find_first_not_of(" \t\v\f")));
}

// The files that `text` names in lines #include "...".
std::vector<std::string_view> included(std::string_view text) {
  constexpr std::string_view kInclude = "include";
  std::vector<std::string_view> names;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = without_blanks(line);
    if (!line.starts_with('#')) continue;
    line = without_blanks(line.substr(1));
    if (!line.starts_with(kInclude)) continue;
    line = without_blanks(line.substr(kInclude.size()));
    if (line.starts_with('"')) names.push_back(line.substr(1, line.find('"', 1) - 1));
  }
  return names;
}

// Whether a single quotation mark behind this separates digits, as in 1'000: it is in a word that
// begins with a digit.
bool is_in_number(std::string_view before) {
  const auto is_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '\'';
  };
  std::size_t start = before.size();
  while (start > 0 && is_of_word(before[start - 1])) --start;
  return start < before.size() && std::isdigit(static_cast<unsigned char>(before[start])) != 0;
}

// Of the string or character literal that the text begins with, to the end of its line at most.
std::size_t literal_length(std::string_view text) {
  for (std::size_t i = 1; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] != '\n') {
      ++i;
    } else if (text[i] == text.front()) {
      return i + 1;
    }
  }
  return 1;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether the quotation mark behind this begins a raw string literal: R", u8R", uR", UR", LR".
bool begins_raw(std::string_view before) {
  std::size_t start = before.size();
  while (start > 0 && is_word(before[start - 1])) --start;
  const std::string_view prefix = before.substr(start);
  return prefix == "R" || prefix == "u8R" || prefix == "uR" || prefix == "UR" || prefix == "LR";
}

// Of the raw string literal whose R the text follows.
std::size_t raw_literal_length(std::string_view text) {
  const std::size_t open = text.find('(');
  if (open == text.npos) return 1;
  const std::string end = fmt::format("){}\"", text.substr(1, open - 1));
  const std::size_t close = text.find(end, open);
  return close == text.npos ? text.size() : close + end.size();
}

// Ends the last line of `code`: without blanks at its end, and without the line if it is blank.
void end_line(std::string* code) {
  std::size_t end = code->size();
  while (end > 0 && ((*code)[end - 1] == ' ' || (*code)[end - 1] == '\t')) --end;
  code->resize(end);
  if (end > 0 && (*code)[end - 1] != '\n') *code += '\n';
}

// Where the first line end, quotation mark or slash is; the length if there is none.
std::size_t plain_length(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size() && text[i] != '\n' && text[i] != '/' && text[i] != '"' &&
         text[i] != '\'') {
    ++i;
  }
  return i;
}

// The text without comments, blanks at the ends of lines, and blank lines; raw string literals are
// empty ones.
std::string strip(std::string_view text) {
  std::string code;
  code.reserve(text.size());
  while (!text.empty()) {
    std::size_t taken = plain_length(text);
    if (taken > 0) {
      code += text.substr(0, taken);
    } else if (text.front() == '\n') {
      taken = 1;
      end_line(&code);
    } else if (text.starts_with("//")) {
      taken = std::min(text.find('\n'), text.size());
    } else if (text.starts_with("/*")) {
      taken = std::min(text.find("*/", 2), text.size() - 2) + 2;
      code += ' ';
    } else if (text.front() == '"' && begins_raw(code)) {
      taken = raw_literal_length(text);
      code += "\"\"";
    } else {
      taken = text.front() == '/' || (text.front() == '\'' && is_in_number(code))
                  ? 1
                  : literal_length(text);
      code += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  end_line(&code);
  return code;
}

// Lines as the preprocessor sees them: those that end in a backslash go on with the next one.
std::string joined_lines(std::string_view text) {
  std::string joined(text);
  std::erase(joined, '\r');
  for (std::size_t at = 0; (at = joined.find("\\\n", at)) != joined.npos;) joined.erase(at, 2);
  return joined;
}

// Whether a file may be opened by this name.
using IsKnown = std::function<bool(std::string_view name)>;

bool is_relative(std::string_view name) { return !name.starts_with('/'); }

// Whether this begins with a name in quotes or angle brackets that is known.
bool names_file(std::string_view text, const IsKnown& is_known) {
  text = without_blanks(text);
  if (text.empty() || (text[0] != '"' && text[0] != '<')) return false;
  const std::size_t end = text.find(text[0] == '"' ? '"' : '>', 1);
  return end != text.npos && is_known(text.substr(1, end - 1));
}

// Whether `before`, of a directive, asks only whether the name behind it is defined.
bool asks_for_definition(std::string_view before) {
  while (!before.empty() && !is_word(before.back())) before.remove_suffix(1);
  for (const std::string_view word : {"defined", "ifdef", "ifndef"}) {
    if (before.ends_with(word)) return true;
  }
  return false;
}

// Whether a directive (without its #) can only open files, or ask for files, by known names.
bool stays_inside(std::string_view directive, const IsKnown& is_known) {
  const auto word_end = std::find_if_not(directive.begin(), directive.end(), is_word);
  const auto word = directive.substr(0, static_cast<std::size_t>(word_end - directive.begin()));
  if (word == "include" || word == "include_next" || word == "embed") {
    return names_file(directive.substr(word.size()), is_known);
  }
  for (const std::string_view question : {"__has_include", "__has_embed"}) {
    for (std::size_t at = 0; (at = directive.find(question, at)) != directive.npos;) {
      const std::string_view before = directive.substr(0, at);
      std::string_view behind = directive.substr(at += question.size());
      if (behind.starts_with("_next")) behind.remove_prefix(5);
      behind = without_blanks(behind);
      const bool is_call = behind.starts_with('(') && names_file(behind.substr(1), is_known);
      if (!is_call && !asks_for_definition(before)) return false;
    }
  }
  return true;
}

// A kernel's own files and every header that they include, directly or not.
TemplateFiles used_files(const TemplateFiles& files, std::string_view kernel) {
  TemplateFiles used;
  std::vector<std::string_view> unread;
  const auto use = [&](const TemplateFiles::value_type& file) {
    if (used.insert(file).second) unread.push_back(file.second);
  };
  const std::string folder = fmt::format("{}/", kernel);
  for (const auto& file : files) {
    if (file.first.starts_with(folder)) use(file);
  }
  while (!unread.empty()) {
    const std::string_view text = unread.back();
    unread.pop_back();
    for (const std::string_view name : included(text)) {
      const auto file = files.find(name);
      if (file != files.end()) use(*file);
    }
  }
  return used;
}

}  // namespace

bool is_device_file(std::string_view file_name) {
  if (file_name == "fields.h" || file_name.ends_with("_ref.h")) return false;
  return file_name.ends_with(".cu") || file_name.ends_with(".cuh") || file_name.ends_with(".h");
}

std::string digest_below(const TemplateFiles& files, std::string_view prefix) {
  std::string text;
  for (const auto& [path, content] : files) {
    if (!path.starts_with(prefix)) continue;
    text += fmt::format("{} {}:{}\n", path, content.size(), content);
  }
  return digest_of(text);
}

std::string without_comments(std::string_view text) {
  if (text.find("R\"") != text.npos || text.find('\r') != text.npos) return std::string(text);
  return strip(text);
}

std::optional<std::string> outside_directive(std::string_view text) {
  return foreign_directive(text, is_relative);
}

std::optional<std::string> foreign_directive(std::string_view text, const IsKnown& is_known) {
  constexpr std::size_t kLongest = 200;
  const std::string code = strip(joined_lines(text));
  std::string_view rest = code;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    line = without_blanks(line);
    const std::size_t mark = line.starts_with('#') ? 1 : line.starts_with("%:") ? 2 : 0;
    if (mark > 0 && !stays_inside(without_blanks(line.substr(mark)), is_known)) {
      return std::string(line.substr(0, kLongest));
    }
  }
  return std::nullopt;
}

std::string code_digest(const TemplateFiles& files, std::string_view kernel) {
  TemplateFiles code = used_files(files, kernel);
  for (auto& [path, text] : code) text = without_comments(text);
  return digest_below(code, "");
}

std::string kernel_digest(const TemplateFiles& files, std::string_view kernel) {
  return digest_below(used_files(files, kernel), "");
}

std::string headers_digest(const TemplateFiles& files) {
  return digest_of(digest_below(files, "common/") + digest_below(files, "cubinery/"));
}

}  // namespace cubinery
