#include "codegen/bundle.h"

#include <fmt/format.h>

#include "codegen/identity.h"

namespace cubinery {

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

std::string headers_digest(const TemplateFiles& files) {
  return digest_of(digest_below(files, "common/") + digest_below(files, "cubinery/"));
}

}  // namespace cubinery
