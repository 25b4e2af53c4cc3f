#include "codegen/directives.h"

#include <algorithm>

#include "codegen/cxx_text.h"
#include "codegen/find_any.h"

namespace cubinery {
namespace {

// Whether lines may be spliced, and whether there are the marks of trigraphs or zero bytes.
struct Oddities {
  bool splices = false;
  bool question_marks = false;
  bool zeros = false;
  bool doubtful_splices = false;
};
Oddities oddities_of(std::string_view text) {
  Oddities oddities;
  for (std::size_t i = 0; (i = find_any<'\0', '\r', '?', '\\'>(text, i)) < text.size(); ++i) {
    const bool ends_line = i + 1 < text.size() && text[i + 1] == '\n';
    oddities.splices |= text[i] == '\r' || (text[i] == '\\' && ends_line);
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] <= ' ' && !ends_line) {
      const std::size_t end = text.find_first_not_of(" \t\v\f\r", i + 1);
      const bool has_blanks = end != text.npos && text.substr(i + 1, end - i - 1) != "\r";
      oddities.doubtful_splices |= has_blanks && text[end] == '\n';
    }
    oddities.question_marks |= text[i] == '?';
    oddities.zeros |= text[i] == '\0';
  }
  return oddities;
}

std::optional<Directive::Kind> kind_named(std::string_view word) {
  if (word == "include" || word == "import") return Directive::Kind::kInclude;
  if (word == "include_next") return Directive::Kind::kIncludeNext;
  if (word == "embed") return Directive::Kind::kEmbed;
  if (word == "if" || word == "elif") return Directive::Kind::kCondition;
  if (word == "define") return Directive::Kind::kDefine;
  return std::nullopt;
}

std::size_t line_end(std::string_view text, std::size_t i) {
  return std::min(text.find('\n', i), text.size());
}

// Whether a line of a directive can be taken as it is.
bool is_plain(std::string_view line) {
  for (std::size_t i = 0; (i = line.find('/', i)) != line.npos; ++i) {
    if (i + 1 < line.size() && (line[i + 1] == '/' || line[i + 1] == '*')) return false;
  }
  return line.find("R\"") == line.npos;
}

}  // namespace

// Walks a text without splices.
class DirectiveScanner {
 public:
  DirectiveScanner(std::string_view code, Directives* out) : code_(code), out_(*out) {}

  void run() {
    out_.first_token_ = code_.size();
    for (std::size_t i = 0; (i = find_any<'/', '"', '\'', '#', '%'>(code_, i)) < code_.size();) {
      note_token(i);
      i = step(i);
      if (has_token_) continue;
      seen_ = i;
    }
    note_token(code_.size());
  }

 private:
  // Behind what begins at `i`.
  std::size_t step(std::size_t i) {
    const std::string_view rest = code_.substr(i);
    if (rest.starts_with("//")) return line_end(code_, i);
    if (rest.starts_with("/*")) {
      const bool leads = leads_line(i);
      i += block_comment_length(rest);
      comment_ = {i, leads};
      return i;
    }
    const std::size_t mark = rest.front() == '#' ? 1 : rest.starts_with("%:") ? 2 : 0;
    if (mark > 0 && leads_line(i)) return directive(i, mark);
    const std::size_t end = literal_end(i);
    note_token_at(i);
    return end;
  }

  // Whether there are only blanks and comments between the line's beginning and this.
  bool leads_line(std::size_t i) const {
    while (i > 0 && i != comment_.first && code_[i - 1] != '\n') {
      const char c = code_[i - 1];
      if (c != ' ' && c != '\t' && c != '\v' && c != '\f') return false;
      --i;
    }
    return i == 0 || code_[i - 1] == '\n' || comment_.second;
  }

  std::size_t literal_end(std::size_t i) const {
    const std::string_view before = code_.substr(0, i);
    const char c = code_[i];
    if (c == '"' && begins_raw(before)) return i + raw_literal_length(code_.substr(i));
    if (c != '"' && (c != '\'' || is_in_number(before))) return i + 1;
    const std::size_t length = literal_length(code_.substr(i));
    // What is no literal makes no comment of the rest of its line either.
    return length > 0 ? i + length : line_end(code_, i);
  }

  std::size_t directive(std::size_t i, std::size_t mark) {
    const std::size_t end = line_end(code_, i);
    const std::string_view line = code_.substr(i + mark, end - i - mark);
    std::string_view body = trimmed(line);
    std::optional<Directive::Kind> kind = kind_named(first_word(body));
    if (is_plain(line)) {
      if (kind) {
        const auto begin = static_cast<std::size_t>(body.data() - code_.data());
        out_.list_.push_back({*kind, out_.original(i), begin, body.size(), std::nullopt});
      }
      return end;
    }
    std::string text;
    const std::size_t behind = take_body(i + mark, &text);
    text = std::string(trimmed(text));
    kind = kind_named(first_word(text));
    if (kind) {
      const std::string_view as_written = without_blanks(code_.substr(i + mark));
      const auto same =
          std::mismatch(text.begin(), text.end(), as_written.begin(), as_written.end());
      const auto begin = static_cast<std::size_t>(as_written.data() - code_.data());
      const auto length = static_cast<std::size_t>(same.first - text.begin());
      out_.list_.push_back({*kind, out_.original(i), begin, length, out_.texts_.size()});
      out_.texts_.push_back(std::move(text));
    }
    return behind;
  }

  // The body of a directive with comments, which may go on on other lines; returns its end.
  std::size_t take_body(std::size_t i, std::string* body) const {
    while (i < code_.size() && code_[i] != '\n') {
      const std::string_view rest = code_.substr(i);
      if (rest.starts_with("//") && !is_in_header_name(*body)) return line_end(code_, i);
      std::size_t end = i + 1;
      if (rest.starts_with("/*") && !is_in_header_name(*body)) {
        end = i + block_comment_length(rest);
        *body += ' ';
      } else {
        if (rest.front() == '"' || rest.front() == '\'') end = literal_end(i);
        *body += code_.substr(i, end - i);
      }
      i = end;
    }
    return i;
  }

  // Whether the name in angle brackets of an #include is open at the end of this.
  static bool is_in_header_name(std::string_view body) {
    const std::string_view word = first_word(without_blanks(body));
    const auto kind = kind_named(word);
    if (kind != Directive::Kind::kInclude && kind != Directive::Kind::kIncludeNext) return false;
    body = without_blanks(without_blanks(body).substr(word.size()));
    return body.starts_with('<') && body.find('>') == body.npos;
  }

  // Notes the first token: what is no blank between what was walked over and `end`.
  void note_token(std::size_t end) {
    if (has_token_) return;
    const std::size_t token = code_.substr(0, end).find_first_not_of(" \t\v\f\n", seen_);
    if (token < end) note_token_at(token);
  }
  void note_token_at(std::size_t i) {
    if (has_token_) return;
    has_token_ = true;
    out_.first_token_ = i;
  }

  const std::string_view code_;
  Directives& out_;
  std::pair<std::size_t, bool> comment_{0,
                                        true};  // the last one's end, and whether it led its line
  std::size_t seen_ = 0;
  bool has_token_ = false;
};

Directives::Directives(std::string_view text) {
  const Oddities oddities = oddities_of(text);
  has_zeros_ = oddities.zeros;
  has_doubtful_splices_ = oddities.doubtful_splices;
  has_trigraphs_ =
      oddities.question_marks && (text.find("?\?=") != text.npos || text.find("?\?/") != text.npos);
  is_joined_ = oddities.splices;
  if (is_joined_) join(text);
  DirectiveScanner(is_joined_ ? std::string_view(joined_) : text, this).run();
  first_token_ = original(first_token_);
}

void Directives::join(std::string_view text) {
  joined_.reserve(text.size());
  std::size_t begin = 0;
  std::size_t backslash = 0;
  std::size_t carriage_return = 0;
  for (std::size_t i = 0;;) {
    if (backslash != text.npos && backslash <= i) backslash = text.find('\\', i);
    if (carriage_return != text.npos && carriage_return <= i) carriage_return = text.find('\r', i);
    i = std::min(backslash, carriage_return);
    if (i == text.npos) break;
    std::size_t end = i + 1;
    if (i == backslash) {
      while (end < text.size() && text[end] == '\r') ++end;
      if (end == text.size() || text[end] != '\n') {
        ++i;
        continue;
      }
      ++end;
    }
    joined_ += text.substr(begin, i - begin);
    cuts_.emplace_back(joined_.size(), end - joined_.size());
    i = begin = end;
  }
  joined_ += text.substr(begin);
}

std::size_t Directives::original(std::size_t joined) const {
  const auto behind =
      std::upper_bound(cuts_.begin(), cuts_.end(), joined,
                       [](std::size_t place, const std::pair<std::size_t, std::size_t>& cut) {
                         return place < cut.first;
                       });
  return behind == cuts_.begin() ? joined : joined + std::prev(behind)->second;
}

std::string_view Directives::body(const Directive& directive, std::string_view text) const {
  if (directive.own) return texts_[*directive.own];
  const std::string_view code = is_joined_ ? std::string_view(joined_) : text;
  return code.substr(directive.begin, directive.length);
}

std::optional<std::pair<std::size_t, std::size_t>> Directives::place(const Directive& directive,
                                                                     std::size_t begin,
                                                                     std::size_t length) const {
  if (length == 0 || begin + length > directive.length) return std::nullopt;
  const std::size_t first = original(directive.begin + begin);
  const std::size_t last = original(directive.begin + begin + length - 1);
  if (last - first + 1 != length) return std::nullopt;
  return std::pair(first, length);
}

std::optional<HeaderName> header_name(std::string_view body, std::size_t at) {
  const std::string_view rest = without_blanks(body.substr(std::min(at, body.size())));
  if (rest.empty() || (rest[0] != '"' && rest[0] != '<')) return std::nullopt;
  const std::size_t close = rest.find(rest[0] == '"' ? '"' : '>', 1);
  if (close == rest.npos || close == 1) return std::nullopt;
  return HeaderName{.name = rest.substr(1, close - 1),
                    .is_quoted = rest[0] == '"',
                    .begin = static_cast<std::size_t>(rest.data() - body.data()),
                    .length = close + 1};
}

std::string_view first_word(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_word);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

namespace {

// Whether `before`, of a directive, asks only whether the name behind it is defined.
bool asks_for_definition(std::string_view before) {
  while (!before.empty() && !is_word(before.back())) before.remove_suffix(1);
  return before.ends_with("defined");
}

// The question whose name, of `length` characters, begins at `at`.
FileQuestion question_at(std::string_view body, std::size_t at, std::size_t length, bool is_embed) {
  FileQuestion question{.begin = at,
                        .end = at + length,
                        .is_next = false,
                        .is_embed = is_embed,
                        .name = std::nullopt,
                        .argument = {}};
  if (body.substr(question.end).starts_with("_next")) {
    question.is_next = true;
    question.end += 5;
  }
  const std::string_view behind = without_blanks(body.substr(question.end));
  if (!behind.starts_with('(')) return question;
  const auto open = static_cast<std::size_t>(behind.data() - body.data());
  question.name = header_name(body, open + 1);
  const std::size_t from = question.name ? question.name->begin + question.name->length : open + 1;
  const std::size_t close = body.find(')', from);
  question.argument = trimmed(body.substr(open + 1, close - open - 1));
  question.end = std::min(close, body.size() - 1) + 1;
  return question;
}

}  // namespace

std::vector<FileQuestion> file_questions(std::string_view body) {
  std::vector<FileQuestion> questions;
  if (body.find("__has_") == body.npos) return questions;
  for (const std::string_view name : {"__has_include", "__has_embed"}) {
    for (std::size_t at = 0; (at = body.find(name, at)) != body.npos; at += name.size()) {
      if (asks_for_definition(body.substr(0, at))) continue;
      questions.push_back(question_at(body, at, name.size(), name == "__has_embed"));
    }
  }
  return questions;
}

}  // namespace cubinery
