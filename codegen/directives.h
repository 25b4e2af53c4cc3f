// The preprocessor directives of a C++ text that open files, ask for files, or may say which: what
// comments, literals, raw string literals and spliced lines leave of them.  Conditions are not
// evaluated: all of a text's directives count.
//
// Of what can open a file under NVRTC 13.0 this is all: #embed and #import are errors there (they
// are reported all the same), `import` needs a mode that it lacks, no #pragma opens anything, and
// ptxas refuses .include in inline assembly.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cubinery {

struct Directive {
  enum class Kind : int {
    kInclude,      // #include, #import
    kIncludeNext,  // #include_next
    kEmbed,        // #embed
    kCondition,    // #if, #elif
    kDefine,       // #define
  };
  Kind kind;
  std::size_t at;  // of its # in the text
  // Of what is behind the #, in the text without its splices.
  std::size_t begin;
  std::size_t length;
  std::optional<std::size_t> own;  // of texts_: its body has fewer comments, from `length` on
};

// Keeps nothing of the text: its methods are given the same one.
class Directives {
 public:
  explicit Directives(std::string_view text);

  const std::vector<Directive>& list() const { return list_; }

  // What is behind the # without comments: "include <x.h>".
  std::string_view body(const Directive& directive, std::string_view text) const;
  // Where a part of the body lies in the text: offset and length.  nullopt: not in one piece.
  std::optional<std::pair<std::size_t, std::size_t>> place(const Directive& directive,
                                                           std::size_t begin,
                                                           std::size_t length) const;

  // Whether trigraphs, which only some standards have, could make other directives of it.
  bool has_trigraphs() const { return has_trigraphs_; }
  // Whether a compiler that takes strings of C sees less of it.
  bool has_zeros() const { return has_zeros_; }
  // Whether a line ends in a backslash and blanks: GCC's preprocessor splices it, NVRTC's does not.
  bool has_doubtful_splices() const { return has_doubtful_splices_; }
  // Where the first token outside comments and directives is: what is before it is what a
  // precompiled header can hold.
  std::size_t first_token() const { return first_token_; }

 private:
  friend class DirectiveScanner;

  void join(std::string_view text);
  std::size_t original(std::size_t joined) const;

  std::vector<Directive> list_;
  std::vector<std::string> texts_;  // of directives that have comments
  // The text without its splices, and for each where it was and how many bytes are gone by then.
  bool is_joined_ = false;
  std::string joined_;
  std::vector<std::pair<std::size_t, std::size_t>> cuts_;
  bool has_trigraphs_ = false;
  bool has_zeros_ = false;
  bool has_doubtful_splices_ = false;
  std::size_t first_token_ = 0;
};

// A name in quotes or angle brackets.
struct HeaderName {
  std::string_view name;
  bool is_quoted;
  std::size_t begin;   // of its first mark
  std::size_t length;  // with both marks
};
// The one that is at `at` of a directive's body, behind blanks.
std::optional<HeaderName> header_name(std::string_view body, std::size_t at);

// The word that a text begins with.
std::string_view first_word(std::string_view text);

// A directive's question for a file: __has_include(...), and the same with _next and _embed.
struct FileQuestion {
  std::size_t begin;  // of its first character in the body
  std::size_t end;    // behind its last one
  bool is_next;
  bool is_embed;
  std::optional<HeaderName> name;  // nullopt: `argument`
  std::string_view argument;       // what is between its parentheses; empty: it has none
};
// Those of a condition's or definition's body.  What only asks whether the question is known, as
// `defined(__has_include)` does, is none.
std::vector<FileQuestion> file_questions(std::string_view body);

}  // namespace cubinery
