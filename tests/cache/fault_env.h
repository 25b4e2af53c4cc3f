// An environment whose calls fail when told to, and whose clock can be set.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/env.h"

namespace cubinery::test {

enum class Op : int {
  kRead,
  kWrite,
  kAppend,
  kRename,
  kSyncDir,
  kRemove,
  kList,
  kMakeDirs,
  kStat,
  kSetMtime,
  kLock
};

// Not thread-safe while faults change.
class FaultEnv : public Env {
 public:
  explicit FaultEnv(std::shared_ptr<Env> base) : base_(std::move(base)) {}

  // Until heal(), each call of `op` fails without doing anything.
  void fail(Op op, std::errc error) { faults_[op] = std::make_error_code(error); }
  // Until heal(), the disk is full after this many bytes more.
  void fill_disk_after(std::size_t bytes) { bytes_left_ = bytes; }
  void heal() {
    faults_.clear();
    bytes_left_.reset();
  }
  // Files that are open stay stale from now on, as on a network file system's client when another
  // machine has replaced them.
  void make_open_files_stale() { ++*age_; }
  void advance_clock(std::int64_t seconds) { clock_offset_ns_ += seconds * 1'000'000'000; }

  std::error_code read(const std::string& path, std::string* bytes, FileInfo* info) override {
    const std::error_code fault = fault_of(Op::kRead);
    return fault ? fault : base_->read(path, bytes, info);
  }
  std::error_code open(const std::string& path, std::unique_ptr<OpenFile>* file) override {
    if (const std::error_code fault = fault_of(Op::kRead)) return fault;
    std::unique_ptr<OpenFile> opened;
    if (const std::error_code error = base_->open(path, &opened)) return error;
    *file = std::make_unique<File>(std::move(opened), age_);
    return {};
  }
  std::error_code write_parts(const std::string& path, std::uint32_t mode,
                              const NextPart& next) override {
    if (const std::error_code fault = fault_of(Op::kWrite)) return fault;
    std::size_t left = bytes_left_.value_or(SIZE_MAX);
    bool is_full = false;
    const std::error_code error =
        base_->write_parts(path, mode, [&](std::string* part) -> std::error_code {
          if (const std::error_code failed = next(part)) return failed;
          is_full = is_full || part->size() > left;
          part->resize(std::min(part->size(), left));
          left -= part->size();
          return {};
        });
    return is_full ? std::make_error_code(std::errc::no_space_on_device) : error;
  }
  std::error_code append(const std::string& path, std::string_view line, std::uint32_t mode,
                         std::string* before) override {
    const std::error_code fault = fault_of(Op::kAppend);
    return fault ? fault : base_->append(path, line, mode, before);
  }
  std::error_code rename(const std::string& from, const std::string& to) override {
    const std::error_code fault = fault_of(Op::kRename);
    return fault ? fault : base_->rename(from, to);
  }
  std::error_code rename_new(const std::string& from, const std::string& to) override {
    const std::error_code fault = fault_of(Op::kRename);
    return fault ? fault : base_->rename_new(from, to);
  }
  std::error_code sync_dir(const std::string& dir) override {
    const std::error_code fault = fault_of(Op::kSyncDir);
    return fault ? fault : base_->sync_dir(dir);
  }
  std::error_code remove(const std::string& path) override {
    const std::error_code fault = fault_of(Op::kRemove);
    return fault ? fault : base_->remove(path);
  }
  std::error_code list(const std::string& dir, std::vector<DirEntry>* entries) override {
    const std::error_code fault = fault_of(Op::kList);
    return fault ? fault : base_->list(dir, entries);
  }
  std::error_code list_names(const std::string& dir, std::vector<std::string>* names) override {
    const std::error_code fault = fault_of(Op::kList);
    return fault ? fault : base_->list_names(dir, names);
  }
  std::error_code make_dirs(const std::string& dir) override {
    const std::error_code fault = fault_of(Op::kMakeDirs);
    return fault ? fault : base_->make_dirs(dir);
  }
  std::error_code stat(const std::string& path, FileInfo* info) override {
    const std::error_code fault = fault_of(Op::kStat);
    return fault ? fault : base_->stat(path, info);
  }
  std::error_code set_mtime(const std::string& path, std::int64_t mtime_ns) override {
    const std::error_code fault = fault_of(Op::kSetMtime);
    return fault ? fault : base_->set_mtime(path, mtime_ns);
  }
  std::error_code set_access(const std::string& path, std::uint32_t group,
                             std::uint32_t mode) override {
    return base_->set_access(path, group, mode);
  }
  std::error_code try_lock(const std::string& path, std::string_view owner,
                           std::unique_ptr<HeldLock>* held) override {
    const std::error_code fault = fault_of(Op::kLock);
    return fault ? fault : base_->try_lock(path, owner, held);
  }
  std::string lock_owner(const std::string& path) override { return base_->lock_owner(path); }
  std::int64_t now_ns() override { return base_->now_ns() + clock_offset_ns_; }
  std::chrono::milliseconds uptime() override { return base_->uptime(); }
  void pause(std::chrono::milliseconds time) override { base_->pause(time); }
  std::uint64_t random() override { return base_->random(); }
  std::uint32_t user() override { return base_->user(); }
  std::optional<std::uint32_t> private_group() override { return base_->private_group(); }
  std::int64_t process() override { return base_->process(); }
  std::string host() override { return base_->host(); }

 private:
  class File : public OpenFile {
   public:
    File(std::unique_ptr<OpenFile> base, std::shared_ptr<std::atomic<int>> age)
        : OpenFile(base->info()), base_(std::move(base)), age_(std::move(age)), opened_(*age_) {}
    std::error_code read_at(std::uint64_t offset, std::size_t size,
                            std::string* bytes) const override {
      if (opened_ != *age_) return {ESTALE, std::generic_category()};
      return base_->read_at(offset, size, bytes);
    }

   private:
    const std::unique_ptr<OpenFile> base_;
    const std::shared_ptr<std::atomic<int>> age_;
    const int opened_;
  };

  std::error_code fault_of(Op op) const {
    const auto fault = faults_.find(op);
    return fault == faults_.end() ? std::error_code() : fault->second;
  }

  const std::shared_ptr<Env> base_;
  std::map<Op, std::error_code> faults_;
  std::optional<std::size_t> bytes_left_;
  std::int64_t clock_offset_ns_ = 0;
  const std::shared_ptr<std::atomic<int>> age_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace cubinery::test
