// Where the comments and literals of C++ text begin and end.  Texts have no spliced lines.
#pragma once

#include <cstddef>
#include <string_view>

namespace cubinery {

// Whether it can be part of a name.
bool is_word(char c);
// Whether it begins a name: no digit.
bool is_word_start(char c);
// Whether all of it is a name.
bool is_identifier(std::string_view text);

// The text behind its leading blanks; a line end is none.
std::string_view without_blanks(std::string_view text);
// And before those at its end.
std::string_view trimmed(std::string_view text);

// Whether a single quotation mark behind this separates digits, as in 1'000: it is in a word that
// begins with a digit.
bool is_in_number(std::string_view before);

// Of the string or character literal that the text begins with; 0: its line ends before it does.
std::size_t literal_length(std::string_view text);

// Whether the quotation mark behind this begins a raw string literal: R", u8R", uR", UR", LR".
bool begins_raw(std::string_view before);

// Of the raw string literal whose R the text follows.
std::size_t raw_literal_length(std::string_view text);

// Of the block comment that the text begins with; the text's length if it never ends.
std::size_t block_comment_length(std::string_view text);

}  // namespace cubinery
