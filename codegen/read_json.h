// The one door for JSON that somebody else wrote.  Pure functions.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cubinery/status.h"

namespace cubinery {

// Members keep the order of the text.
using Json = nlohmann::ordered_json;

// What a text may have at most.  Far above what any document of ours has.
struct JsonLimits {
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t depth = 64;      // of arrays and objects within each other
  std::size_t members = 4096;  // of one object
  std::size_t values = std::size_t{1} << 20;
};

// The value that `text` is.  Takes time and memory in proportion to the text, and no stack for its
// depth, so that what it returns can be printed and copied by recursion.
//
// kInvalidArgument: not JSON, not UTF-8, a number that no double holds, a name twice in one object,
// or more than the limits.  The message begins with `what`, unless that is empty, and ends with the
// line and column, the column alone where the text is one line.
Result<Json> read_json(std::string_view what, std::string_view text, const JsonLimits& limits = {});

// The same of what Python's json module writes: NaN, Infinity and -Infinity are numbers, too.
Result<Json> read_python_json(std::string_view what, std::string_view text,
                              const JsonLimits& limits = {});

// For messages: foreign text cut to a length that a message can have.
std::string excerpt(std::string_view text);
// Likewise of a value, as JSON, or as Python has a number that JSON has not.
std::string json_excerpt(const Json& value);

}  // namespace cubinery
