#include "capi/documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <vector>

#include "capi/arguments.h"
#include "capi/for_python.h"
#include "codegen/nearest.h"
#include "codegen/utf8.h"

namespace cubinery::capi {
namespace {

Status check_known(const char* argument, const char* name, const std::vector<std::string>& known) {
  CUBINERY_RETURN_IF_ERROR(not_null(argument, name));
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("{} = \"{}\"; accepted: {}{}", argument, name, fmt::join(known, ", "),
                            did_you_mean(name, known)));
}

std::atomic<bool> keeps_bytes = false;

// A JSON string, the bytes that are no UTF-8 as halves of surrogate pairs.
std::string json_string(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    std::size_t good = 0;
    while (good < text.size()) {
      const std::size_t length = utf8_length(text.substr(good));
      if (length == 0) break;
      good += length;
    }
    const std::string part = Json(text.substr(0, good)).dump();
    json.append(part, 1, part.size() - 2);
    text.remove_prefix(good);
    if (text.empty()) break;
    json += fmt::format("\\udc{:02x}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
  }
  return json + '"';
}

// Of our own documents, which are a few levels deep.
std::string with_bytes(const Json& value) {
  if (value.is_string()) return json_string(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value.dump();
  std::string json;
  for (const auto& [name, member] : value.items()) {
    json += json.empty() ? "" : ",";
    if (value.is_object()) json += json_string(name) + ":";
    json += with_bytes(member);
  }
  return value.is_object() ? "{" + json + "}" : "[" + json + "]";
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

Json json_of(const std::string& kernel, const std::string& canonical, const Explanation& found) {
  return {{"kernel", kernel},
          {"canonical", canonical},
          {"identity", found.identity},
          {"source_path", found.source_path},
          {"options", found.options},
          {"cached", found.cached},
          {"path", found.path},
          {"nearest_path", found.nearest_path},
          {"differences", found.differences}};
}

void keep_bytes_in_json() { keeps_bytes = true; }

std::string printed(const Json& document) {
  if (!keeps_bytes) return document.dump(-1, ' ', false, Json::error_handler_t::replace);
  return with_bytes(document);
}

char* json_text(const Json& document) { return new_text(printed(document)); }

}  // namespace cubinery::capi
