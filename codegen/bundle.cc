#include "codegen/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "codegen/identity.h"

namespace cubinery {
namespace {

std::string_view without_blanks(std::string_view text) {
  return text.substr(std::min(text.size(), text.find_first_not_of(" \t")));
}

// The files that `text` names in lines #include "...".
std::vector<std::string_view> included(std::string_view text) {
  constexpr std::string_view kInclude = "include";
  std::vector<std::string_view> names;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = without_blanks(line);
    if (!line.starts_with('#')) continue;
    line = without_blanks(line.substr(1));
    if (!line.starts_with(kInclude)) continue;
    line = without_blanks(line.substr(kInclude.size()));
    if (line.starts_with('"')) names.push_back(line.substr(1, line.find('"', 1) - 1));
  }
  return names;
}

}  // namespace

bool is_device_file(std::string_view file_name) {
  if (file_name == "fields.h" || file_name.ends_with("_ref.h")) return false;
  return file_name.ends_with(".cu") || file_name.ends_with(".cuh") || file_name.ends_with(".h");
}

std::string digest_below(const TemplateFiles& files, std::string_view prefix) {
  std::string text;
  for (const auto& [path, content] : files) {
    if (!path.starts_with(prefix)) continue;
    text += fmt::format("{} {}:{}\n", path, content.size(), content);
  }
  return digest_of(text);
}

std::string kernel_digest(const TemplateFiles& files, std::string_view kernel) {
  TemplateFiles used;
  std::vector<std::string_view> unread;
  const auto use = [&](const TemplateFiles::value_type& file) {
    if (used.insert(file).second) unread.push_back(file.second);
  };
  const std::string folder = fmt::format("{}/", kernel);
  for (const auto& file : files) {
    if (file.first.starts_with(folder)) use(file);
  }
  while (!unread.empty()) {
    const std::string_view text = unread.back();
    unread.pop_back();
    for (const std::string_view name : included(text)) {
      const auto file = files.find(name);
      if (file != files.end()) use(*file);
    }
  }
  return digest_below(used, "");
}

std::string headers_digest(const TemplateFiles& files) {
  return digest_of(digest_below(files, "common/") + digest_below(files, "cubinery/"));
}

}  // namespace cubinery
