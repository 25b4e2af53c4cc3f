#include "runtime/jit/included_files.h"

#include <fmt/format.h>

#include "cache/env.h"
#include "codegen/bundle.h"
#include "codegen/identity.h"

namespace cubinery {
namespace {

// Longer ones no file system has.
constexpr std::size_t kMaxName = 4096;

using FoundFile = std::shared_ptr<const IncludeFile>;

Status include_error(const Status& error) {
  return Status(error.code(), fmt::format("include: {}", error.message()));
}

// Whether an error says that compilers would not find a file there either.
bool is_no_file(std::error_code error) {
  return is_absent(error) || error == std::errc::not_a_directory ||
         error == std::errc::filename_too_long;
}

}  // namespace

// The files of one call: what it has found in a folder stays.
class IncludedFiles::Reader {
 public:
  // The last root is the library.
  Reader(IncludedFiles* files, const std::vector<std::string>& roots)
      : files_(*files), roots_(roots), folders_(roots.size() - 1) {}

  Result<FoundFile> read(std::size_t root, const std::string& name) {
    if (root == folders_.size()) return of_the_library(name);
    if (name.size() > kMaxName) return FoundFile();
    const std::size_t slash = name.rfind('/');
    Result<bool> exists = has_folder(root, slash == name.npos ? "" : name.substr(0, slash));
    if (!exists) return std::move(exists).error();
    if (!*exists) return FoundFile();
    const std::string path = fmt::format("{}/{}", roots_[root], name);
    std::string text;
    FileInfo info;
    if (const std::error_code error = env_->read(path, &text, &info)) {
      if (is_no_file(error)) return FoundFile();
      // A folder of that name is passed over.
      if (!env_->stat(path, &info) && info.kind == FileKind::kDirectory) return FoundFile();
      return include_error(read_error(path, error));
    }
    const Status owner = check_owner(*env_, path, info, files_.trust_);
    if (!owner.ok()) return include_error(owner);
    return files_.file_of(std::move(text));
  }

 private:
  FoundFile of_the_library(const std::string& name) {
    if (!name.starts_with("common/") && !name.starts_with("cubinery/")) return nullptr;
    const auto found = embedded_templates().find(name);
    return found == embedded_templates().end() ? nullptr : files_.file_of(found->second);
  }

  // Whether a root has the folder, which must be one that nobody else can write.
  Result<bool> has_folder(std::size_t root, const std::string& folder) {
    const auto [known, is_new] = folders_[root].try_emplace(folder, false);
    if (!is_new) return known->second;
    bool* const exists = &known->second;  // stays where it is
    if (!folder.empty()) {
      const std::size_t slash = folder.rfind('/');
      Result<bool> above = has_folder(root, slash == folder.npos ? "" : folder.substr(0, slash));
      if (!above || !*above) return above;
    }
    const std::string path =
        folder.empty() ? roots_[root] : fmt::format("{}/{}", roots_[root], folder);
    FileInfo info;
    if (const std::error_code error = env_->stat(path, &info)) {
      if (is_no_file(error)) return false;
      return include_error(io_error("examine", path, error));
    }
    if (info.kind != FileKind::kDirectory) return false;
    const Status owner = check_owner(*env_, path, info, files_.trust_);
    if (!owner.ok()) return include_error(owner);
    return *exists = true;
  }

  IncludedFiles& files_;
  const std::vector<std::string>& roots_;
  const std::shared_ptr<Env> env_ = posix_env();
  std::vector<std::unordered_map<std::string, bool>> folders_;  // by their names in each root
};

Result<IncludeClosure> IncludedFiles::closure_of(IncludeQuery query) {
  query.roots.emplace_back("<embedded>");
  Reader reader(this, query.roots);
  return include_closure(
      query, [&](std::size_t root, const std::string& name) { return reader.read(root, name); });
}

std::shared_ptr<const IncludeFile> IncludedFiles::file_of(std::string text) {
  auto file = std::make_shared<IncludeFile>();
  file->digest = digest_of(text);
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(file->digest);
    if (known != known_.end()) file->directives = known->second;
  }
  if (!file->directives) {
    file->directives = std::make_shared<const Directives>(text);
    const std::lock_guard lock(mutex_);
    known_.try_emplace(file->digest, file->directives);
  }
  file->text = std::move(text);
  return file;
}

}  // namespace cubinery
