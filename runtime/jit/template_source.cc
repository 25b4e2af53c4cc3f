#include "runtime/jit/template_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cache/env.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

bool is_identifier(std::string_view name) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), is_word) &&
         !(name[0] >= '0' && name[0] <= '9');
}

// Puts the device files of root/folder into `files`, in place of those of the same name.
Status overlay(const fs::path& root, std::string_view folder, TemplateFiles* files) {
  std::error_code error;
  fs::directory_iterator entry(root / folder, error);
  if (error == std::errc::no_such_file_or_directory) return {};
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!is_device_file(name) || name.starts_with('.')) continue;
    Result<std::string> text = read_file(entry->path().string());
    if (!text) return Status(Code::kIo, fmt::format("template: {}", text.error().message()));
    files->insert_or_assign(fmt::format("{}/{}", folder, name), std::move(*text));
  }
  if (!error) return {};
  return Status(Code::kIo, fmt::format("template: cannot list {}: {}", (root / folder).string(),
                                       error.message()));
}

}  // namespace

Result<TemplateSource> find_template(std::string_view kernel,
                                     const std::vector<std::string>& template_dirs) {
  if (!is_identifier(kernel)) {
    return Status(Code::kInvalidKey,
                  fmt::format("template: kernel name \"{}\" is not a C identifier", kernel));
  }
  TemplateSource source;
  const std::string own = fmt::format("{}/", kernel);
  source.path = fmt::format("{0}/{0}.cu", kernel);
  source.origin = "<embedded>/" + source.path;
  for (const auto& [path, text] : embedded_templates()) {
    if (path.starts_with("common/") || path.starts_with("cubinery/") || path.starts_with(own)) {
      source.files.emplace(path, text);
    }
  }
  // Backwards, so that the first folder has the last word.
  for (auto dir = template_dirs.rbegin(); dir != template_dirs.rend(); ++dir) {
    CUBINERY_RETURN_IF_ERROR(overlay(*dir, "common", &source.files));
    CUBINERY_RETURN_IF_ERROR(overlay(*dir, kernel, &source.files));
    std::error_code ignored;
    const fs::path file = fs::path(*dir) / source.path;
    if (fs::exists(file, ignored)) source.origin = file.string();
  }
  const auto found = source.files.find(source.path);
  if (found == source.files.end()) {
    return Status(Code::kInvalidKey, fmt::format("template: no {} in [{}] or inside the library",
                                                 source.path, fmt::join(template_dirs, ", ")));
  }
  source.text = found->second;
  source.template_digest = digest_below(source.files, own);
  source.headers_digest = headers_digest(source.files);
  return source;
}

Result<std::string> find_code_digest(std::string_view kernel,
                                     const std::vector<std::string>& template_dirs) {
  const EmbeddedDigests* embedded = embedded_digests(kernel);
  if (embedded != nullptr && template_dirs.empty()) return std::string(embedded->code);
  const Result<TemplateSource> source = find_template(kernel, template_dirs);
  if (!source) return source.error().clone();
  return code_digest(source->files, kernel);
}

}  // namespace cubinery
