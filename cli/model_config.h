// Problems of a model's config.json.  Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/asked_kernel.h"
#include "cubinery/status.h"
#include "runtime/registry/operators.h"

namespace cubinery {

// One problem that somebody wants kernels for, or one kernel of their own.
struct Request {
  // An engine's, or a model's, whose form it is made from is itself; a problem that is none of a
  // model's has no form.
  gdn::EngineProblem asked;
  std::string origin;    // "config.json, tp 4"; "problems.json, entry 3"; "command line"
  std::string arch;      // empty: every architecture of --arch
  std::string engine{};  // empty: none
  // It is a form that nobody named: left out where it cannot be had and another one can.
  bool may_be_left_out = false;
  std::optional<AskedKernel> own_kernel{};  // then `asked` means nothing
};
// Whether the request, which cannot be had, is left out because of `other`, which can: another form
// of the same operator and model, or of the same engine.
bool stands_in(const Request& other, const Request& request);

// problems_for_model() for each tensor-parallel size: one request per size and form, in the order
// of `tp` and model_forms().  `file` only names it in messages.  Errors as there.
Result<std::vector<Request>> read_model_config(std::string_view file, std::string_view text,
                                               const std::vector<int>& tp,
                                               const gdn::ModelOptions& options = {});

// gdn::problems_for_engine(), likewise.
Result<std::vector<Request>> read_model_config(std::string_view file, std::string_view text,
                                               const std::vector<int>& tp, std::string_view engine,
                                               const gdn::ModelOptions& options);

// The same in the words of --help, where files are named --hf-config: what problems_for_model()
// does.
extern const char* const kModelAssumptions;
// Where that stands, for the help of other commands.
inline constexpr const char* kModelHelp =
    "What --hf-config and the flags ask for: cubinery problems --help.";

}  // namespace cubinery
