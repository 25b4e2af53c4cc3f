#include "capi/documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "capi/arguments.h"
#include "codegen/nearest.h"

namespace cubinery::capi {
namespace {

Status check_known(const char* argument, const char* name, const std::vector<std::string>& known) {
  CUBINERY_RETURN_IF_ERROR(not_null(argument, name));
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("{} = \"{}\"; accepted: {}{}", argument, name, fmt::join(known, ", "),
                            did_you_mean(name, known)));
}

}  // namespace

Status check_operator(const char* op) { return check_known("op", op, operator_names()); }

Status check_form(const char* form) { return check_known("form", form, form_names()); }

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
