#include "codegen/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "codegen/cxx_text.h"
#include "codegen/directives.h"
#include "codegen/identity.h"

namespace cubinery {
namespace {

// The files that `text` names in lines #include "...".
std::vector<std::string> included(std::string_view text) {
  const Directives directives(text);
  std::vector<std::string> names;
  for (const Directive& directive : directives.list()) {
    if (directive.kind != Directive::Kind::kInclude) continue;
    const std::string_view body = directives.body(directive, text);
    const std::optional<HeaderName> name = header_name(body, first_word(body).size());
    if (name && name->is_quoted) names.emplace_back(name->name);
  }
  return names;
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
      taken = block_comment_length(text);
      code += ' ';
    } else if (text.front() == '"' && begins_raw(code)) {
      taken = raw_literal_length(text);
      code += "\"\"";
    } else {
      const bool is_one = text.front() == '/' || (text.front() == '\'' && is_in_number(code));
      taken = is_one ? 1 : std::max<std::size_t>(literal_length(text), 1);
      code += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  end_line(&code);
  return code;
}

bool is_relative(const std::optional<HeaderName>& name) {
  return name && !name->name.starts_with('/');
}

// Whether a directive can only open files, or ask for files, by relative names.
bool stays_inside(Directive::Kind kind, std::string_view body) {
  if (kind != Directive::Kind::kCondition && kind != Directive::Kind::kDefine) {
    return is_relative(header_name(body, first_word(body).size()));
  }
  const std::vector<FileQuestion> questions = file_questions(body);
  return std::all_of(questions.begin(), questions.end(),
                     [](const FileQuestion& question) { return is_relative(question.name); });
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
    for (const std::string& name : included(text)) {
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
  constexpr std::size_t kLongest = 200;
  const Directives directives(text);
  for (const Directive& directive : directives.list()) {
    const std::string_view body = directives.body(directive, text);
    if (!stays_inside(directive.kind, body)) return fmt::format("#{}", body.substr(0, kLongest));
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
