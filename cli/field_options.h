// What the field options of one command change in its problems.  Pure functions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cli/model_config.h"

namespace cubinery {

// Options by the names of fields.  In a model's forms each is a switch of the model
// (gdn::ModelOptions), unless none of the forms has the property: then, as in other problems, it is
// the field of that name.
class FieldOptions {
 public:
  // Requires: `fields` outlives this object.
  FieldOptions(const std::map<std::string, std::string>& fields,
               const std::vector<Request>& requests);

  // Whether the option changes the request's problem.
  bool changes(const Request& request, const std::string& name) const;
  bool change_all(const Request& request) const;
  // The fields of the request's problem that the options set, and their texts.
  std::map<std::string, std::string> of(const Request& request) const;

 private:
  const std::map<std::string, std::string>& fields_;
  std::set<std::string> switches_;  // those that some form has
};

// Whether the request's problem has the field.
bool has_field(const Request& request, const std::string& field);

}  // namespace cubinery
