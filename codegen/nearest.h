// Misspelt names.  Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cubinery {

// "; did you mean state_dtype?", with "or" where several are as near, or "" where none is.  Case, -
// and _ make no difference; a word that a candidate begins or ends with is near it.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// The candidates as "a, b, c and 40 more", those first that resemble `word`.
std::string nearest_text(std::string_view word, std::vector<std::string> candidates);

}  // namespace cubinery
