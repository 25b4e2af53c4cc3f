// JSON that several formats of reports share.  Pure functions.
#pragma once

#include <string>

#include "codegen/read_json.h"

namespace cubinery {

// The members of a record (json_of() of records_json.h) without the first one, which says what it
// is.
Json members_of(Json record);

// The text of a document, with an end of line.  Bytes that are not UTF-8 are replaced.
std::string printed(const Json& document);

}  // namespace cubinery
