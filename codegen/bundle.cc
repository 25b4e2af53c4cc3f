#include "codegen/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "codegen/identity.h"

namespace cubinery {
namespace {

std::string_view without_blanks(std::string_view text) {
  return text.substr(std::min(text.size(), text.find_first_not_of(" \t")));
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
