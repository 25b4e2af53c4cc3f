#include "cli/help.h"

#include <fmt/format.h>

#include <utility>

#include "cli/problem_options.h"

namespace cubinery {
namespace {

constexpr std::size_t kColumns = 100;

// "  --q-heads --k-heads", in lines.
std::string names_text(const std::vector<const CLI::Option*>& options) {
  std::string text, line;
  for (const CLI::Option* option : options) {
    const std::string name = option->get_name();
    if (!line.empty() && line.size() + 1 + name.size() > kColumns) {
      text += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "  " : " ") + name;
  }
  return text + line + "\n";
}

}  // namespace

std::string Help::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  mode_ = mode;
  return CLI::Formatter::make_help(app, std::move(name), mode);
}

std::string Help::make_group(std::string group, bool is_positional,
                             std::vector<const CLI::Option*> options) const {
  if (group != kFieldGroup || mode_ == CLI::AppFormatMode::All) {
    return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
  }
  return fmt::format(
      "\n{}:\n{}  Each takes a value; --help-all and cubinery operators describe them.\n", group,
      names_text(options));
}

}  // namespace cubinery
