// What #include NAME can mean: the values of macros, by all of their definitions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
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
  static std::optional<Definition> parsed(std::string_view behind_name);
  const std::vector<Definition>& definitions_of(std::string_view name) const;

  // Headers have thousands of definitions, of which a dozen is asked for.
  struct Known {
    std::size_t hash;  // of the name
    std::string_view name;
    std::string_view behind;
  };
  std::vector<Known> known_;
  mutable std::unordered_map<std::string, std::vector<Definition>> asked_;
  std::vector<std::unique_ptr<const std::string>> own_;  // texts of options
};

}  // namespace cubinery
