// The command line's words for problems and architectures, shared by prewarm, explain
// and tune.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/field_options.h"
#include "cli/left_out.h"
#include "cli/plan.h"
#include "cli/source_file_options.h"
#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

// The group of the options that are fields of problems.
inline constexpr const char* kFieldGroup =
    "Problem fields (one problem of their own for each operator, defaults in brackets; or replaced "
    "in every problem of the files)";

// "--key-dim" of "key_dim".
std::string option_name(std::string_view name);

// One field of the operators' problems on the command line.
struct ProblemField {
  std::string name;  // as to_json() names it
  std::string help;
};
// Those of all operators, each once; each operator's are in its own order.
const std::vector<ProblemField>& problem_fields();

// `problem` with some fields replaced by what their texts say; those that its operator does not
// have are left out.  kInvalidArgument names the field, its value and what is accepted.
Result<Problem> with_fields(const Problem& problem,
                            const std::map<std::string, std::string>& fields);

// Where the problems and the architectures of one command come from.
class ProblemOptions {
 public:
  // Requires: this object outlives the parse and does not move.
  void add_to(CLI::App& app);
  // Without --arch and kernels in files, for commands that work for one architecture.
  void add_problems_to(CLI::App& app);

  // Problems that cannot be had and that nobody named go to *left_out, and cut lines of manifests.
  //
  // Every problem of every source that is of an operator of --op, and of models those of --form,
  // field options applied and checked.  kInvalidArgument: no source at all, a file or a value that
  // cannot be used, a field that none of the problems has; kIo: a file that cannot be read.
  Result<std::vector<Request>> requests(LeftOuts* left_out) const;

  // Whether none of the options is given.
  bool is_empty() const;
  // Whether --op or --form names exactly one.
  bool names_one() const {
    return operators_.size() == 1 || (forms_.size() == 1 && !asks_for_functions());
  }

  // Each kernel that the requests need, as plan_jobs() with the paths of these options, and the
  // results of their cache and of the library; where they leave the architecture open, for those of
  // --arch, without it for those of this machine's GPUs.  kInvalidArgument: a name that is
  // not known, or neither --arch nor a GPU where one is needed: names the known ones.
  Result<std::vector<Job>> jobs(const std::vector<Request>& requests, const Options& options,
                                LeftOuts* left_out) const;

 private:
  Result<std::vector<int>> tp_sizes() const;
  Status check_operators() const;
  Status check_operators_are_there(const std::vector<Request>& requests) const;
  Status check_engine() const;
  Status check_forms() const;
  // Those that --form can name.
  std::vector<std::string> known_forms() const;
  // Whether --form has "functions", which are all that begin so.
  bool asks_for_functions() const;
  bool is_named(const Request& request) const;
  Result<std::vector<std::string>> archs(const Options& options) const;
  Result<std::vector<Request>> unmodified(LeftOuts* left_out) const;
  // Without files of problems: one of each operator, where fields are given.
  std::vector<Request> of_fields() const;
  Status check_fields_are_used(const std::vector<Request>& requests,
                               const FieldOptions& options) const;
  gdn::ModelOptions model_options() const;
  bool may_leave_out(const Request& refused, const std::vector<Request>& changed,
                     const FieldOptions& options) const;

  std::vector<std::string> hf_configs_;
  std::vector<std::string> manifests_;
  std::vector<std::string> tp_;
  std::string model_type_;
  std::string engine_;
  std::vector<std::string> operators_;
  std::vector<std::string> forms_;
  std::vector<std::string> archs_;
  std::map<std::string, std::string> fields_;
  SourceFileOptions source_file_;
};

}  // namespace cubinery
