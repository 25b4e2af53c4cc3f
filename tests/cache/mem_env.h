// A file system in memory that can lose what was not synced.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/env.h"

namespace cubinery::test {

inline std::error_code error_of(std::errc code) { return std::make_error_code(code); }

class MemEnv : public Env {
 public:
  struct File {
    std::string bytes;
    FileInfo info;
    bool synced = true;
  };
  // What a crash does to renames and removals whose directory was not synced.
  enum class Unsynced : int { kKept, kLost };

  std::error_code read(const std::string& path, std::string* bytes, FileInfo* info) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto file = files_.find(path);
    if (file == files_.end()) return error_of(std::errc::no_such_file_or_directory);
    *bytes = file->second.bytes;
    *info = info_of(file->second);
    bytes_read += bytes->size();
    return {};
  }

  std::error_code open(const std::string& path, std::unique_ptr<OpenFile>* file) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = files_.find(path);
    if (found == files_.end()) return error_of(std::errc::no_such_file_or_directory);
    ++opened;
    *file = std::make_unique<Open>(this, found->second.bytes, info_of(found->second));
    return {};
  }

  std::error_code write_parts(const std::string& path, std::uint32_t mode,
                              const NextPart& next) override {
    std::string bytes;
    for (std::string part = "?"; !part.empty(); bytes += part) {
      if (const std::error_code error = next(&part)) return error;
    }
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!dirs_.contains(parent(path))) return error_of(std::errc::no_such_file_or_directory);
    if (files_.contains(path)) return error_of(std::errc::file_exists);
    File file{std::move(bytes), {}, !sync_fails};
    file.info.mtime_ns = now;
    file.info.owner = made_by;
    file.info.mode = mode;
    files_[path] = std::move(file);
    return sync_fails ? error_of(std::errc::io_error) : std::error_code();
  }

  std::error_code rename(const std::string& from, const std::string& to) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    auto node = files_.extract(from);
    if (node.empty()) return error_of(std::errc::no_such_file_or_directory);
    files_[to] = std::move(node.mapped());
    return {};
  }

  std::error_code rename_new(const std::string& from, const std::string& to) override {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (files_.contains(to)) return error_of(std::errc::file_exists);
    }
    return rename(from, to);
  }

  std::error_code append(const std::string& path, std::string_view line, std::uint32_t mode,
                         std::string* before) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!dirs_.contains(parent(path))) return error_of(std::errc::no_such_file_or_directory);
    File& file = files_[path];
    *before = file.bytes;
    file.bytes += line;
    file.info.mode = mode;
    file.info.owner = kUser;
    return {};
  }

  std::error_code sync_dir(const std::string& dir) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::erase_if(durable_, [&](const auto& file) { return parent(file.first) == dir; });
    for (const auto& [path, file] : files_) {
      if (parent(path) == dir) durable_[path] = file;
    }
    return {};
  }

  std::error_code remove(const std::string& path) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    return files_.erase(path) == 1 ? std::error_code()
                                   : error_of(std::errc::no_such_file_or_directory);
  }

  std::error_code list(const std::string& dir, std::vector<DirEntry>* entries) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    entries->clear();
    if (!dirs_.contains(dir)) return error_of(std::errc::no_such_file_or_directory);
    for (const auto& [path, file] : files_) {
      if (parent(path) == dir) entries->push_back({path.substr(dir.size() + 1), info_of(file)});
    }
    return {};
  }

  std::error_code list_names(const std::string& dir, std::vector<std::string>* names) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    names->clear();
    if (!dirs_.contains(dir)) return error_of(std::errc::no_such_file_or_directory);
    for (const auto& [path, file] : files_) {
      if (parent(path) == dir) names->push_back(path.substr(dir.size() + 1));
    }
    for (const auto& [path, info] : dirs_) {
      if (parent(path) == dir) names->push_back(path.substr(dir.size() + 1));
    }
    if (dir.ends_with("/entries")) ++listed;
    return {};
  }

  std::error_code make_dirs(const std::string& dir) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    FileInfo info;
    info.kind = FileKind::kDirectory;
    info.owner = made_by;
    info.mode = 0700;
    for (std::string path = dir; !path.empty(); path = parent(path)) dirs_.emplace(path, info);
    return {};
  }

  std::error_code stat(const std::string& path, FileInfo* info) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    examined.insert(path);
    if (const auto dir = dirs_.find(path); dir != dirs_.end()) {
      *info = dir->second;
    } else if (const auto file = files_.find(path); file != files_.end()) {
      *info = info_of(file->second);
    } else {
      return error_of(std::errc::no_such_file_or_directory);
    }
    return {};
  }

  std::error_code set_mtime(const std::string& path, std::int64_t mtime_ns) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto file = files_.find(path);
    if (file == files_.end()) return error_of(std::errc::no_such_file_or_directory);
    file->second.info.mtime_ns = mtime_ns;
    return {};
  }

  std::error_code set_access(const std::string& path, std::uint32_t group,
                             std::uint32_t mode) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto dir = dirs_.find(path);
    const auto file = files_.find(path);
    if (dir == dirs_.end() && file == files_.end()) {
      return error_of(std::errc::no_such_file_or_directory);
    }
    FileInfo& info = dir != dirs_.end() ? dir->second : file->second.info;
    info.group = group;
    info.mode = mode;
    return {};
  }

  std::error_code try_lock(const std::string& path, std::string_view owner,
                           std::unique_ptr<HeldLock>* held) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!dirs_.contains(parent(path))) return error_of(std::errc::no_such_file_or_directory);
    if (!locked_.insert(path).second) return error_of(std::errc::operation_would_block);
    files_[path].bytes = owner;
    *held = std::make_unique<Lock>(this, path);
    return {};
  }

  std::string lock_owner(const std::string& path) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    return locked_.contains(path) ? files_[path].bytes : "";
  }

  std::int64_t now_ns() override { return now; }
  std::chrono::milliseconds uptime() override { return paused; }
  void pause(std::chrono::milliseconds time) override { paused += time; }
  std::uint64_t random() override { return ++random_; }
  std::uint32_t user() override { return kUser; }
  std::optional<std::uint32_t> private_group() override { return own_group; }
  std::int64_t process() override { return 1; }
  std::string host() override { return "host/with/slashes"; }

  void crash(Unsynced unsynced) {
    if (unsynced == Unsynced::kLost) files_ = durable_;
    for (auto& [path, file] : files_) {
      if (!file.synced) file.bytes.assign(file.bytes.size() / 2, '\0');
    }
  }

  // For tests that look behind the cache's back; not while another thread uses the environment.
  std::map<std::string, File>& files() { return files_; }
  std::map<std::string, FileInfo>& dirs() { return dirs_; }

  static constexpr std::uint32_t kUser = 1000;
  std::int64_t now = std::int64_t{1'700'000'000} * 1'000'000'000;
  std::optional<std::uint32_t> own_group;
  std::uint32_t made_by = kUser;             // the owner of what is made
  std::chrono::milliseconds paused{0};       // by pause() in all; nobody really waits
  std::set<std::string> examined;            // by stat()
  std::size_t opened = 0;                    // calls of open()
  std::size_t listed = 0;                    // calls of list_names() of entries
  std::atomic<std::uint64_t> bytes_read{0};  // of all files
  bool sync_fails = false;                   // bytes are written, then fsync() reports an error

 private:
  // Keeps the bytes: files are replaced, never written to.
  class Open : public OpenFile {
   public:
    Open(MemEnv* env, std::string bytes, FileInfo info)
        : OpenFile(info), env_(env), bytes_(std::move(bytes)) {}
    std::error_code read_at(std::uint64_t offset, std::size_t size,
                            std::string* bytes) const override {
      *bytes = offset < bytes_.size() ? bytes_.substr(static_cast<std::size_t>(offset), size) : "";
      env_->bytes_read += bytes->size();
      return {};
    }

   private:
    MemEnv* const env_;
    const std::string bytes_;
  };

  class Lock : public HeldLock {
   public:
    Lock(MemEnv* env, std::string path) : env_(env), path_(std::move(path)) {}
    ~Lock() override {
      const std::lock_guard<std::mutex> guard(env_->mutex_);
      env_->files_.erase(path_);
      env_->locked_.erase(path_);
    }

   private:
    MemEnv* const env_;
    const std::string path_;
  };

  static std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

  static FileInfo info_of(const File& file) {
    FileInfo info = file.info;
    info.bytes = file.bytes.size();
    return info;
  }

  std::mutex mutex_;
  std::map<std::string, File> files_;    // as processes see them
  std::map<std::string, File> durable_;  // as the disk has them
  std::map<std::string, FileInfo> dirs_;
  std::set<std::string> locked_;
  std::uint64_t random_ = 0;
};

}  // namespace cubinery::test
