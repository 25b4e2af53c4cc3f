// A kernel whose text is in a file, on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_config.h"
#include "cubinery/status.h"

namespace cubinery {

class SourceFileOptions {
 public:
  // Requires: this object outlives the parse and does not move.
  void add_to(CLI::App& app);

  // nullopt: none of the options is given.  kInvalidArgument: others without the file, or one that
  // cannot be used.
  Result<std::optional<Request>> request() const;

 private:
  std::string file_;
  std::string function_;
  std::vector<std::string> includes_;
  std::vector<std::string> options_;
  std::string compiler_;
};

}  // namespace cubinery
