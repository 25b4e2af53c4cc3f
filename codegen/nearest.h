// Misspelt names.  Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cubinery {

// "; did you mean state_dtype?", with "or" where several are as near, or "" where none is.  Letters'
// case, - and _ make no difference; a word that a candidate begins with is near it.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace cubinery
