// The command line's words for problems and architectures, shared by prewarm and explain.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "cli/model_config.h"
#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

// One field of DecodeProblem on the command line: --name-with-dashes.
struct ProblemField {
  const char* name;  // as DecodeProblem::to_json() names it
  const char* help;
};
const std::vector<ProblemField>& problem_fields();

// `problem` with some fields replaced by what their texts say.  kInvalidArgument names the field,
// its value and what is accepted.
Result<gdn::DecodeProblem> with_fields(const gdn::DecodeProblem& problem,
                                       const std::map<std::string, std::string>& fields);

// What --hf-config assumes, for --help.
extern const char* const kModelAssumptions;

// Where the problems and the architectures of one command come from.
class ProblemOptions {
 public:
  // Requires: this object outlives the parse and does not move.
  void add_to(CLI::App& app);

  // Every problem of every source, field options applied.  kInvalidArgument: no source at all, a
  // file or a value that cannot be used; kIo: a file that cannot be read.
  Result<std::vector<Request>> requests() const;

  // The architectures of --arch, each once; without it those of this machine's GPUs.
  // kInvalidArgument: a name that is not known, or neither --arch nor a GPU: names the known ones.
  Result<std::vector<std::string>> archs(const Options& options) const;

 private:
  Result<std::vector<int>> tp_sizes() const;
  Result<std::vector<Request>> unmodified() const;

  std::vector<std::string> hf_configs_;
  std::vector<std::string> manifests_;
  std::vector<std::string> tp_;
  std::vector<std::string> archs_;
  std::map<std::string, std::string> fields_;
};

}  // namespace cubinery
