// Entries between a store and packs.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "cache/pack.h"
#include "cache/paths.h"
#include "cache/store.h"

namespace cubinery {
namespace {

// OK: there is nothing at `path`, or a file that a pack may replace.
Status check_replaceable(Env& env, const std::string& path) {
  std::unique_ptr<OpenFile> file;
  std::error_code error = env.open(path, &file);
  if (is_absent(error)) return Status();
  std::string front;
  if (!error) error = file->read_at(0, 16, &front);
  if (!error && (front.empty() || is_pack(front))) return Status();
  if (error && error != std::errc::invalid_argument) return io_error("read", path, error);
  return Status(Code::kInvalidArgument,
                fmt::format("{} is there and is not a pack; accepted: a new file, or a pack to be "
                            "replaced",
                            path));
}

}  // namespace

Result<ExportResult> Store::export_pack(const std::string& path,
                                        const std::function<bool(const Identity&)>& wanted,
                                        const AcceptEntry& accept) {
  CUBINERY_RETURN_IF_ERROR(check_replaceable(*env_, path));
  ExportResult result;
  std::uint64_t others = 0;
  std::set<std::string> names;
  std::vector<PackedEntry> entries;
  for (const Layer& layer : layers()) {
    // What is lacking in a pack is found out in production.
    if (!layer.trouble.empty()) {
      return Status(Code::kIo,
                    fmt::format("nothing can be exported from {}: {}", layer.path, layer.trouble));
    }
    std::vector<DirEntry> files;
    if (const std::error_code error = layer.list(*env_, &files)) {
      return io_error("list", layer.path, error);
    }
    for (const DirEntry& file : files) {
      if (names.contains(file.name)) continue;
      const EntryFile read = layer.read(*env_, file.name, options_.trust_shared_dirs);
      if (read.entry && !wanted(read.entry->identity)) {
        ++others;
        continue;
      }
      if (const std::string trouble = trouble_with(read, accept); !trouble.empty()) {
        ++result.unusable;  // perhaps one of those that are wanted
        pass_over(layer.path_of(file.name), trouble);
      } else if (read.entry) {
        names.insert(file.name);
        entries.push_back({file.name, encode_entry(*read.entry)});
      }
    }
  }
  if (entries.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("no entry to be exported: {} are others, {} cannot be used", others,
                              result.unusable));
  }
  result.entries = entries.size();
  const std::string bytes = encode_pack(std::move(entries));
  result.bytes = bytes.size();
  CUBINERY_RETURN_IF_ERROR(
      write_file(paths::pack_temporary_path(path, env_->process(), env_->random()), path, bytes));
  return result;
}

Result<ImportResult> Store::import_pack(const std::string& path, const AcceptEntry& accept) {
  const Layer layer = open_layer(*env_, path, options_.trust_shared_dirs);
  if (layer.info.kind != FileKind::kRegular) {
    return Status(Code::kInvalidArgument, fmt::format("{}: no such pack", path));
  }
  if (!layer.trouble.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("nothing is imported from {}: {}", path, layer.trouble));
  }
  if (layer.info.bytes > options_.limit_bytes) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} has {} bytes, and the cache may hold {}; use the pack as a layer, "
                    "or raise the limit",
                    path, layer.info.bytes, options_.limit_bytes));
  }
  CUBINERY_RETURN_IF_ERROR(prepare(paths::entries_dir(options_.dir)));
  const Layer writable = writable_layer();
  ImportResult result;
  std::vector<std::string> taken;
  for (const Pack::Record& record : layer.pack->records()) {
    const EntryFile packed = layer.pack->read(record);
    if (const std::string trouble = trouble_with(packed, accept); !trouble.empty()) {
      ++result.damaged;
      pass_over(layer.path_of(record.name), trouble);
      continue;
    }
    const EntryFile present = writable.read(*env_, record.name, options_.trust_shared_dirs);
    if (present.entry && trouble_with(present, accept).empty()) {
      ++result.present;
      taken.push_back(record.name);
      renew_stamp(writable.path_of(record.name), present.info.mtime_ns);
      continue;
    }
    Result<std::string> published = publish(*packed.entry);
    if (!published) return std::move(published).error();
    ++result.imported;
    taken.push_back(record.name);
  }
  FileInfo info;
  result.evicted = static_cast<std::uint64_t>(
      std::count_if(taken.begin(), taken.end(), [&](const std::string& name) {
        return is_absent(env_->stat(writable.path_of(name), &info));
      }));
  return result;
}

}  // namespace cubinery
