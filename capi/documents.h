// JSON that goes through the C functions.
#pragma once

#include <string>

#include "codegen/read_json.h"
#include "cubinery/context.h"
#include "cubinery/status.h"
#include "runtime/registry/operators.h"

namespace cubinery::capi {

// Whether it is one of operator_names().  kInvalidArgument: NULL, or it is not.
Status check_operator(const char* op);
// The same of form_names().
Status check_form(const char* form);

// A problem that passes check().  kInvalidArgument: NULL, an operator that is not known, or a
// problem that cannot be read or used.
Result<Problem> read_problem(const char* op, const char* problem);

// As cubinery_context_explain() has it of each kernel.
Json json_of(const std::string& kernel, const std::string& canonical, const Explanation& found);

// Paths need not be UTF-8: what is not becomes a replacement character, or what
// keep_bytes_in_json() says.
std::string printed(const Json& document);
// The same for cubinery_free_text().
char* json_text(const Json& document);

}  // namespace cubinery::capi
