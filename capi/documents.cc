#include "capi/documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "capi/arguments.h"
#include "codegen/nearest.h"

namespace cubinery::capi {

Status check_operator(const char* op) {
  CUBINERY_RETURN_IF_ERROR(not_null("op", op));
  const std::vector<std::string>& known = operator_names();
  if (std::find(known.begin(), known.end(), op) != known.end()) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("op = \"{}\"; accepted: {}{}", op, fmt::join(known, ", "),
                            did_you_mean(op, known)));
}

Result<Problem> read_problem(const char* op, const char* problem) {
  CUBINERY_RETURN_IF_ERROR(check_operator(op));
  CUBINERY_RETURN_IF_ERROR(not_null("problem", problem));
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
