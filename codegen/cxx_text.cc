#include "codegen/cxx_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "codegen/find_any.h"

namespace cubinery {
namespace {

constexpr std::string_view kBlanks = " \t\v\f";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

bool is_word_start(char c) { return is_word(c) && !is_digit(c); }

bool is_identifier(std::string_view text) {
  return !text.empty() && is_word_start(text.front()) &&
         std::all_of(text.begin(), text.end(), is_word);
}

std::string_view without_blanks(std::string_view text) {
  return text.substr(std::min(text.size(), text.find_first_not_of(kBlanks)));
}

std::string_view trimmed(std::string_view text) {
  text = without_blanks(text);
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

bool is_in_number(std::string_view before) {
  const auto is_of_number = [](char c) { return (is_word(c) && c != '_') || c == '\''; };
  std::size_t start = before.size();
  while (start > 0 && is_of_number(before[start - 1])) --start;
  return start < before.size() && is_digit(before[start]);
}

std::size_t literal_length(std::string_view text) {
  const char mark = text.front();
  for (std::size_t i = 1; i < text.size(); ++i) {
    i = mark == '"' ? find_any<'"', '\\', '\n'>(text, i) : find_any<'\'', '\\', '\n'>(text, i);
    if (i == text.size() || text[i] == '\n') break;
    if (text[i] == mark) return i + 1;
    if (i + 1 < text.size() && text[i + 1] != '\n') ++i;
  }
  return 0;
}

bool begins_raw(std::string_view before) {
  if (!before.ends_with('R')) return false;
  std::size_t start = before.size();
  while (start > 0 && is_word(before[start - 1])) --start;
  const std::string_view prefix = before.substr(start);
  return prefix == "R" || prefix == "u8R" || prefix == "uR" || prefix == "UR" || prefix == "LR";
}

std::size_t raw_literal_length(std::string_view text) {
  const std::size_t open = text.find('(');
  if (open == text.npos) return 1;
  const std::string end = fmt::format("){}\"", text.substr(1, open - 1));
  const std::size_t close = text.find(end, open);
  return close == text.npos ? text.size() : close + end.size();
}

std::size_t block_comment_length(std::string_view text) {
  return std::min(text.find("*/", 2), text.size() - 2) + 2;
}

}  // namespace cubinery
