// JSON that several formats of reports share.  Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace cubinery {

// The members of a record, from its line (records.h), without the first one, which says what it is.
// Requires: to_line() made the line.
nlohmann::ordered_json members_of(std::string_view line);

// The text of a document, with an end of line.  Bytes that are not UTF-8 are replaced.
std::string printed(const nlohmann::ordered_json& document);

}  // namespace cubinery
