#include "runtime/jit/template_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "cache/env.h"
#include "codegen/cxx_text.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

Status template_error(const Status& error) {
  return Status(error.code(), fmt::format("template: {}", error.message()));
}

constexpr std::string_view kSharedFolder = "common";

// The folders of the caller.  A template is code: whoever can write it runs code as us.
class Overlay {
 public:
  Overlay(const Trust& trust, TemplateFiles* files) : trust_(trust), files_(files) {}

  // Puts the device files of root/folder, and of the folders in "common", into the files, in place
  // of those of the same name.
  Status add(const fs::path& root, std::string_view folder) {
    CUBINERY_RETURN_IF_ERROR(check(root.string()));
    const fs::path dir = root / folder;
    CUBINERY_RETURN_IF_ERROR(check(dir.string()));
    std::error_code error;
    fs::directory_iterator entry(dir, error);
    if (error == std::errc::no_such_file_or_directory) return {};
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with('.')) continue;
      std::error_code ignored;
      if (folder == kSharedFolder && entry->is_directory(ignored)) {
        CUBINERY_RETURN_IF_ERROR(add(root, fmt::format("{}/{}", folder, name)));
        continue;
      }
      if (!is_device_file(name)) continue;
      Result<std::string> text = read_file(entry->path().string());
      if (!text) return std::move(text).error();
      CUBINERY_RETURN_IF_ERROR(check_directives(entry->path().string(), *text));
      files_->insert_or_assign(fmt::format("{}/{}", folder, name), std::move(*text));
    }
    if (!error) return {};
    return template_error(io_error("list", dir.string(), error));
  }

 private:
  Status check(const std::string& path) const {
    const Status owner = check_owner(*env_, path, trust_);
    return owner.ok() ? Status() : template_error(owner);
  }

  // An identity covers the files of the folders, and no others.
  static Status check_directives(const std::string& path, std::string_view text) {
    const std::optional<std::string> directive = outside_directive(text);
    if (!directive) return {};
    return Status(Code::kCompileFailed,
                  fmt::format("template: {}: {}: may read a file outside the template folders, "
                              "whose changes would go unseen; accepted: a name in quotes or angle "
                              "brackets, \"<folder>/<file>\", no absolute path and no macro",
                              path, *directive));
  }

  Result<std::string> read_file(const std::string& path) const {
    std::string text;
    FileInfo info;
    if (const std::error_code error = env_->read(path, &text, &info)) {
      return template_error(read_error(path, error));
    }
    const Status owner = check_owner(*env_, path, info, trust_);
    if (!owner.ok()) return template_error(owner);
    return text;
  }

  const std::shared_ptr<Env> env_ = posix_env();
  const Trust trust_;
  TemplateFiles* const files_;
};

}  // namespace

Result<TemplateSource> find_template(std::string_view kernel,
                                     const std::vector<std::string>& template_dirs,
                                     const Trust& trust) {
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
  Overlay overlay(trust, &source.files);
  for (auto dir = template_dirs.rbegin(); dir != template_dirs.rend(); ++dir) {
    CUBINERY_RETURN_IF_ERROR(overlay.add(*dir, kSharedFolder));
    CUBINERY_RETURN_IF_ERROR(overlay.add(*dir, kernel));
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
                                     const std::vector<std::string>& template_dirs,
                                     const Trust& trust) {
  const EmbeddedDigests* embedded = embedded_digests(kernel);
  if (embedded != nullptr && template_dirs.empty()) return std::string(embedded->code);
  const Result<TemplateSource> source = find_template(kernel, template_dirs, trust);
  if (!source) return source.error().clone();
  return code_digest(source->files, kernel);
}

}  // namespace cubinery
