#include "runtime/jit/included_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <thread>

#include "cache/env.h"
#include "codegen/bundle.h"
#include "codegen/identity.h"
#include "codegen/utf8.h"
#include "runtime/jit/on_threads.h"

namespace cubinery {
namespace {

// Longer ones no file system has.
constexpr std::size_t kMaxName = 4096;

// Of what an entry keeps.  With CuTe's tensor.hpp it is 46 KB.
constexpr std::size_t kMostQuestionBytes = std::size_t{1} << 20;

constexpr std::size_t kPartBytes = std::size_t{128} << 10;

// Questions are asked in parts, for threads to take: files differ in size.
constexpr std::size_t kLeastOfPart = 100;
constexpr std::size_t kMostParts = 8;
constexpr std::size_t kMostThreads = 4;

// In the place of a folder's path.
constexpr const char* kLibrary = "<embedded>";

using FoundFile = std::shared_ptr<const IncludeFile>;

Status include_error(const Status& error) {
  return Status(error.code(), fmt::format("include: {}", error.message()));
}

// Whether an error says that compilers would not find a file there either.
bool is_nowhere(std::error_code error) {
  return is_absent(error) || error == std::errc::not_a_directory ||
         error == std::errc::filename_too_long;
}

}  // namespace

struct IncludedFiles::Question {
  std::string_view line;  // "+ 0 cute/tensor.hpp"
  bool is_there;
  std::size_t root;
  std::string name;
};

// The files of one call: what it has found in a folder stays.
class IncludedFiles::Reader {
 public:
  // The last root is the library.
  Reader(IncludedFiles* files, const std::vector<std::string>& roots)
      : files_(*files), roots_(roots), folders_(roots.size() - 1) {}

  Result<FoundFile> read(std::size_t root, const std::string& name) {
    if (root == folders_.size()) {
      const std::string* text = in_the_library(name);
      return text == nullptr ? FoundFile() : files_.file_of(*text);
    }
    Result<std::string> path = path_of(root, name);
    if (!path) return std::move(path).error();
    std::string text;
    FileInfo info;
    if (path->empty()) return FoundFile();
    if (const std::error_code error = env_->read(*path, &text, &info)) {
      if (is_no_file(*path, error)) return FoundFile();
      return include_error(read_error(*path, error));
    }
    CUBINERY_RETURN_IF_ERROR(checked(*path, info));
    return files_.file_of(std::move(text));
  }

  // The digest of what read() reads; empty: there is no file.  nullopt: read() has an error.
  std::optional<std::string> digest(std::size_t root, const std::string& name) {
    if (root == folders_.size()) {
      const std::string* text = in_the_library(name);
      return text == nullptr ? "" : digest_of(*text);
    }
    const Result<std::string> path = path_of(root, name);
    if (!path) return std::nullopt;
    if (path->empty()) return "";
    std::unique_ptr<OpenFile> file;
    if (const std::error_code error = env_->open(*path, &file)) {
      return is_no_file(*path, error) ? std::optional<std::string>("") : std::nullopt;
    }
    const FileInfo& info = file->info();
    if (info.bytes > Env::kMaxFileBytes || !checked(*path, info).ok()) return std::nullopt;
    // In parts that stay in the processor's cache.
    std::uint64_t offset = 0;
    std::error_code error;
    std::string text = digest_of_parts([&]() -> std::string_view {
      error = file->read_at(offset, kPartBytes, &part_);
      offset += part_.size();
      return error ? std::string_view() : std::string_view(part_);
    });
    return error ? std::nullopt : std::optional<std::string>(std::move(text));
  }

 private:
  // Null: it has none of that name.
  static const std::string* in_the_library(const std::string& name) {
    if (!name.starts_with("common/") && !name.starts_with("cubinery/")) return nullptr;
    const auto found = embedded_templates().find(name);
    return found == embedded_templates().end() ? nullptr : &found->second;
  }

  // Where the file would be; empty: its folder is nowhere.
  Result<std::string> path_of(std::size_t root, const std::string& name) {
    if (name.size() > kMaxName) return std::string();
    const std::size_t slash = name.rfind('/');
    Result<bool> exists = has_folder(root, slash == name.npos ? "" : name.substr(0, slash));
    if (!exists) return std::move(exists).error();
    return *exists ? fmt::format("{}/{}", roots_[root], name) : std::string();
  }

  // Whether an error of reading says that there is no file; a folder of that name is passed over.
  bool is_no_file(const std::string& path, std::error_code error) {
    FileInfo info;
    return is_nowhere(error) || (!env_->stat(path, &info) && info.kind == FileKind::kDirectory);
  }

  Status checked(const std::string& path, const FileInfo& info) {
    const Status owner = check_owner(*env_, path, info, files_.trust_);
    return owner.ok() ? Status() : include_error(owner);
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
      if (is_nowhere(error)) return false;
      return include_error(io_error("examine", path, error));
    }
    if (info.kind != FileKind::kDirectory) return false;
    CUBINERY_RETURN_IF_ERROR(checked(path, info));
    return *exists = true;
  }

  IncludedFiles& files_;
  const std::vector<std::string>& roots_;
  const std::shared_ptr<Env> env_ = posix_env();
  std::string part_;                                            // of a file
  std::vector<std::unordered_map<std::string, bool>> folders_;  // by their names in each root
};

std::optional<std::vector<IncludedFiles::Question>> IncludedFiles::questions_in(
    std::string_view lines, std::size_t roots) {
  std::vector<Question> questions;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const bool is_there = line.starts_with("+ ");
    if (!is_there && !line.starts_with("- ")) return std::nullopt;
    const char* const end = line.data() + line.size();
    std::size_t root = 0;
    const auto [behind, error] = std::from_chars(line.data() + 2, end, root);
    if (error != std::errc() || root >= roots || behind == end || *behind != ' ') {
      return std::nullopt;
    }
    questions.push_back({line, is_there, root, std::string(behind + 1, end)});
  }
  return questions;
}

std::string questions_text(const IncludeClosure& closure, std::size_t roots) {
  std::string lines;
  std::string answers;
  for (const IncludeQuestion& question : closure.questions) {
    if (question.name.find('\n') != std::string::npos || !is_utf8(question.name)) return "";
    const std::string line =
        fmt::format("{} {} {}\n", question.file ? '+' : '-', question.root, question.name);
    lines += line;
    answers += line;
    if (question.file) answers += question.file->digest;
  }
  if (lines.size() > kMostQuestionBytes) return "";
  return fmt::format("{} {} {}\n{}", kIncludeRules, roots, digest_of(answers), lines);
}

bool IncludedFiles::still_give(const std::vector<std::string>& roots, std::string_view questions) {
  const std::string head = fmt::format("{} {} ", kIncludeRules, roots.size());
  if (!questions.starts_with(head)) return false;
  const std::string_view digest = questions.substr(head.size(), questions.find('\n') - head.size());
  questions.remove_prefix(std::min(questions.size(), head.size() + digest.size() + 1));
  std::vector<std::string> all = roots;
  all.emplace_back(kLibrary);
  const std::optional<std::vector<Question>> asked = questions_in(questions, all.size());
  if (!asked) return false;
  const std::size_t parts = std::min(kMostParts, asked->size() / kLeastOfPart + 1);
  std::vector<std::optional<std::string>> answers(parts);
  const std::size_t threads =
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  on_threads(parts, threads, [&](std::size_t part) {
    const std::size_t begin = asked->size() * part / parts;
    const std::size_t end = asked->size() * (part + 1) / parts;
    answers[part] = answers_to(all, {asked->data() + begin, end - begin});
  });
  std::string text;
  for (const std::optional<std::string>& answer : answers) {
    if (!answer) return false;
    text += *answer;
  }
  return digest == digest_of(text);
}

std::optional<std::string> IncludedFiles::answers_to(const std::vector<std::string>& roots,
                                                     std::span<const Question> questions) {
  Reader reader(this, roots);
  std::string answers;
  for (const Question& question : questions) {
    const std::optional<std::string> digest = reader.digest(question.root, question.name);
    if (!digest || digest->empty() == question.is_there) return std::nullopt;
    answers += question.line;
    answers += '\n';
    answers += *digest;
  }
  return answers;
}

Result<IncludeClosure> IncludedFiles::closure_of(IncludeQuery query) {
  query.roots.emplace_back(kLibrary);
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
