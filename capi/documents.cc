#include "capi/documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "capi/arguments.h"

namespace cubinery::capi {

Result<Problem> read_problem(const char* op, const char* problem) {
  CUBINERY_RETURN_IF_ERROR(not_null("op", op));
  CUBINERY_RETURN_IF_ERROR(not_null("problem", problem));
  const std::vector<std::string>& known = operator_names();
  if (std::find(known.begin(), known.end(), op) == known.end()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("op = \"{}\"; accepted: {}", op, fmt::join(known, ", ")));
  }
  Result<Problem> parsed = parse_problem(op, problem);
  if (!parsed) return parsed;
  CUBINERY_RETURN_IF_ERROR(check(*parsed));
  return parsed;
}

std::string printed(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

char* json_text(const Json& document) { return new_text(printed(document)); }

}  // namespace cubinery::capi
