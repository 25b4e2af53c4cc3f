#include "cli/command_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/print.h"
#include "runtime/jit/options_text.h"

namespace cubinery {

std::string command_text(const CLI::App& app, std::string_view name,
                         const std::vector<std::string>& without) {
  std::string text = fmt::format("cubinery {}", name);
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& long_name = option->get_lnames().front();
    if (std::find(without.begin(), without.end(), long_name) != without.end()) continue;
    const std::string word = "--" + long_name;
    if (option->get_expected_max() == 0) {
      text += " " + word;
    } else if (option->get_delimiter() != '\0') {
      const std::string_view comma(",");
      text += " " + shell_option(word, join(option->results(), comma));
    } else {
      for (const std::string& value : option->results()) text += " " + shell_option(word, value);
    }
  }
  return text;
}

}  // namespace cubinery
