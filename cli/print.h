// Text for people: tables, sizes, ages, errors.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/env.h"  // read_file(), for the commands
#include "cubinery/status.h"
#include "tuner/report/table.h"  // Table, for the commands

namespace cubinery {

// Exit codes of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;   // the command ran, and something it looked at is bad
inline constexpr int kExitUsage = 2;    // the command line, or a file that it names, cannot be used
inline constexpr int kExitLeftOut = 3;  // all is good but for problems that cannot be had
inline constexpr int kExitInterrupted = 130;  // as shells report SIGINT

// "1.5 MiB".
std::string bytes_text(std::uint64_t bytes);
// "40 s", "32 min", "2.5 h".
std::string duration_text(double seconds);
// "just now", "5 min ago", "3 days ago".
std::string age_text(std::int64_t then_unix, std::int64_t now_unix);
// "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");
// `text` with `prefix` before each of its lines.
std::string indented(std::string_view text, std::string_view prefix);

// `text` with control characters as "\x1b", and bytes that are no UTF-8 likewise: names from packs,
// manifests and results must not steer a terminal.  Line ends and tabs stay.
std::string visible(std::string_view text);

// visible() to stdout.  What goes wrong is kept for output_error(): a command prints on, and fails
// at its end.
void print(std::string_view text);
// OK, or why something that was printed since the last call did not reach stdout.
Status output_error();
// To stderr, visible(): "cubinery: message", and the compiler's log under it.
void print_error(std::string_view message, std::string_view log = {});
// Prints the error; returns kExitUsage.
int usage_error(const Status& error);
// kInvalidArgument: an option's value is no name that it accepts; `besides`: what it accepts
// besides the names.
Status unknown_name(std::string_view option, std::string_view value,
                    const std::vector<std::string>& known, std::string_view besides = {});
// OK: kExitOk.  Else prints the error; returns kExitUsage for kInvalidArgument, or kExitFailed.
int exit_code_of(const Status& status);
// Whether write_text() will be able to write there, as far as can be known: for commands to ask
// before their work.  An empty path is nobody's output.  kIo.
Status check_output(const std::string& path);
// Writes to `path`, or to stdout for "-".  A file is there as a whole or, after an error, as it was
// before.  kIo.
Status write_text(const std::string& path, std::string_view text);
Status write_json(const std::string& path, const nlohmann::ordered_json& document);

}  // namespace cubinery
