// What #include NAME can mean: the values of macros, by all of their definitions.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/directives.h"

namespace cubinery {

class IncludeMacros {
 public:
  // A name as it stands in a directive.
  struct Candidate {
    std::string name;
    bool is_quoted;
    bool operator==(const Candidate&) const = default;
  };

  // Takes the definitions of a text, which stays where it is.
  void add(const Directives& directives, std::string_view text);
  // Those of -D among a compiler's options.
  void add_options(const std::vector<std::string>& options);

  // All names that the text can expand to, whichever definitions are in force.  nullopt: one of
  // its expansions is no name in quotes or angle brackets, or has macros in a way that is not
  // followed (# and ##, more than kMaxCandidates, names that have no definition).
  std::optional<std::vector<Candidate>> expand(std::string_view text) const;

  static constexpr std::size_t kMaxCandidates = 256;

 private:
  struct Definition {
    bool is_function = false;
    std::vector<std::string_view> parameters;
    std::string_view body;
  };
  class Expansion;

  void define(std::string_view text);

  std::map<std::string_view, std::vector<Definition>> definitions_;
  std::vector<std::unique_ptr<const std::string>> own_;  // texts of options
};

}  // namespace cubinery
