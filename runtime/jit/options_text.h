// Options as text: how the environment, the command line and the C ABI write their values.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

// The one door for the environment.  Whoever starts a privileged process chooses its environment,
// and must not choose what it runs: there every variable is as good as unset, which is empty.
std::string environment_variable(const char* name);

// The parts between colons that are not empty.
std::vector<std::string> split_at_colons(std::string_view text);

// OK, or kInvalidArgument: an element of Options::paths is neither "op=path" nor "op=-path".
Status check_paths(const std::vector<std::string>& paths);

// OK, or kInvalidArgument: a directory begins with a "~", which only a shell expands: a folder of
// that name would be made.
Status check_directories(const Options& options);

// `text` as a word of a command for a shell: as it is, or quoted.
std::string shell_word(std::string_view text);
// The same of a path that is an argument: one that begins with a dash would be taken for an option.
std::string shell_path(std::string_view path);
// An option and its value, as words of a command for a shell.
std::string shell_option(std::string_view name, std::string_view value);

// Whether `text` is "0" or "1"; *value says which.
bool parse_switch(std::string_view text, bool* value);

// A number of bytes: "4096", or with K, M, G or T for multiples by powers of 1024, "512M". nullopt:
// anything else, or more than 64 bits hold.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
inline constexpr const char* kBytesAccepted =
    "a number of bytes such as 4096, 64K, 512M, 1G or 2T (powers of 1024)";

// "uid:65534,gid:2000", "all", or "" for nobody else; nullopt: anything else.
std::optional<Trust> parse_trust(std::string_view text);
inline constexpr const char* kTrustAccepted =
    "all, or ids of users and groups between commas such as uid:65534,gid:2000";

// Whether `text` is nothing but an integer that *value can hold.
template <class Integer>
bool parse_integer(std::string_view text, Integer* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

}  // namespace cubinery
