// Commands that a command proposes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace cubinery {

// "cubinery NAME" with the options that `app` was given, but for those whose names are in
// `without`: a line for a shell.
std::string command_text(const CLI::App& app, std::string_view name,
                         const std::vector<std::string>& without);

}  // namespace cubinery
