// How the command line prints its help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cubinery {

// The fields of problems by their names alone; --help-all describes them.
class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;

 private:
  mutable CLI::AppFormatMode mode_ = CLI::AppFormatMode::Normal;  // of the help that is being made
};

}  // namespace cubinery
