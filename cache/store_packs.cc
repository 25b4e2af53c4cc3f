// Entries between a store and packs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cache/pack.h"
#include "cache/paths.h"
#include "cache/store.h"
#include "cache/system_call.h"

namespace cubinery {
namespace {

// OK: there is nothing at `path`, or a file that a pack may replace.
Status check_replaceable(Env& env, const std::string& path) {
  std::string front;
  const std::error_code error = retry_stale([&] {
    std::unique_ptr<OpenFile> file;
    const std::error_code unopened = env.open(path, &file);
    return unopened ? unopened : file->read_at(0, 16, &front);
  });
  if (is_absent(error)) return Status();
  if (!error && (front.empty() || is_pack(front))) return Status();
  if (error && error != std::errc::invalid_argument) return io_error("read", path, error);
  return Status(Code::kInvalidArgument,
                fmt::format("{} is there and is not a pack; accepted: a new file, or a pack to be "
                            "replaced",
                            path));
}

}  // namespace

// Which entries go into a pack, and from which layer each.
struct Store::Selection {
  std::vector<Layer> layers;
  std::map<std::string, std::pair<PackedEntry, Layer*>> entries;  // by name
  std::uint64_t others = 0;
  std::uint64_t unusable = 0;
};

Status Store::select(const std::function<bool(const Identity&)>& wanted, const AcceptEntry& accept,
                     Selection* selection) {
  selection->layers = layers();
  for (Layer& layer : selection->layers) {
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
      if (selection->entries.contains(file.name)) continue;
      const EntryFile read = layer.read(*env_, file.name, options_.trust);
      if (read.entry && !wanted(read.entry->identity)) {
        ++selection->others;
      } else if (const std::string trouble = trouble_with(read, accept); !trouble.empty()) {
        ++selection->unusable;  // perhaps one of those that are wanted
        pass_over(layer.path_of(file.name), trouble);
      } else if (read.entry) {
        selection->entries.try_emplace(file.name,
                                       packed_entry(file.name, encode_entry(*read.entry)), &layer);
      }
    }
  }
  return Status();
}

Status Store::write_pack(const std::string& path, const Selection& selection,
                         std::uint64_t* bytes) {
  std::vector<PackedEntry> index;
  for (const auto& [name, entry] : selection.entries) index.push_back(entry.first);
  auto next = selection.entries.begin();
  Status changed;
  // One entry at a time: a cache may be larger than the memory.
  const auto next_part = [&](std::string* part) {
    part->clear();
    if (*bytes == 0) {
      *part = encode_pack_front(index);
    } else if (next != selection.entries.end()) {
      const auto& [name, entry] = *next++;
      const EntryFile read = entry.second->read(*env_, name, options_.trust);
      if (read.entry) *part = encode_entry(*read.entry);
      if (part->size() != entry.first.bytes || !part->ends_with(entry.first.checksum)) {
        changed = Status(Code::kIo, fmt::format("{} has changed while it was exported",
                                                entry.second->path_of(name)));
        return std::make_error_code(std::errc::io_error);
      }
    }
    *bytes += part->size();
    return std::error_code();
  };
  const Replacement file{
      .path = path,
      .temporary = paths::pack_temporary_path(path, env_->process(), env_->random()),
      .mode = kFileMode,
      .finish = nullptr};
  const std::error_code error = retry_stale([&] {
    next = selection.entries.begin();
    *bytes = 0;
    return replace_file(*env_, file, next_part);
  });
  if (!changed.ok()) return changed;
  if (error) return io_error("write", path, error);
  return sync(paths::parent(path));
}

Result<ExportResult> Store::export_pack(const std::string& path,
                                        const std::function<bool(const Identity&)>& wanted,
                                        const AcceptEntry& accept) {
  CUBINERY_RETURN_IF_ERROR(check_replaceable(*env_, path));
  Selection selection;
  CUBINERY_RETURN_IF_ERROR(select(wanted, accept, &selection));
  if (selection.entries.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("no entry to be exported: {} are others, {} cannot be used",
                              selection.others, selection.unusable));
  }
  ExportResult result{
      .entries = selection.entries.size(), .bytes = 0, .unusable = selection.unusable};
  CUBINERY_RETURN_IF_ERROR(write_pack(path, selection, &result.bytes));
  return result;
}

Status Store::check_importable(const Layer& layer) const {
  if (layer.info.kind != FileKind::kRegular) {
    return Status(Code::kInvalidArgument, fmt::format("{}: no such pack", layer.path));
  }
  if (!layer.trouble.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("nothing is imported from {}: {}", layer.path, layer.trouble));
  }
  if (layer.info.bytes <= options_.limit_bytes) return Status();
  return Status(Code::kInvalidArgument,
                fmt::format("{} has {} bytes, and the cache may hold {}; use the pack as a layer, "
                            "or raise the limit",
                            layer.path, layer.info.bytes, options_.limit_bytes));
}

Result<ImportResult> Store::import_pack(const std::string& path, const AcceptEntry& accept) {
  Layer layer = open_layer(*env_, path, options_.trust);
  CUBINERY_RETURN_IF_ERROR(check_importable(layer));
  const std::string entries = paths::entries_dir(options_.dir);
  CUBINERY_RETURN_IF_ERROR(prepare({}));
  Layer writable = writable_layer();
  const std::vector<std::string> there = names_with(writable, "", names_.now());
  ImportResult result;
  std::vector<std::string> taken;
  const std::shared_ptr<const Pack> pack = layer.pack;
  for (const Pack::Record& record : pack->records()) {
    const EntryFile packed = layer.read(*env_, record.name, options_.trust);
    if (!packed.entry && packed.trouble.empty()) continue;  // not in a pack that has replaced it
    if (const std::string trouble = trouble_with(packed, accept); !trouble.empty()) {
      ++result.damaged;
      pass_over(layer.path_of(record.name), trouble);
      continue;
    }
    taken.push_back(record.name);
    if (std::binary_search(there.begin(), there.end(), record.name)) {
      const EntryFile present = writable.read(*env_, record.name, options_.trust);
      if (present.entry && trouble_with(present, accept).empty()) {
        ++result.present;
        renew_stamp(writable.path_of(record.name), present.info.mtime_ns);
        continue;
      }
    }
    Result<bool> written = write_entry(*packed.entry, accept);
    if (!written) {
      ++failed_writes_;
      return std::move(written).error();
    }
    ++(*written ? result.imported : result.present);
    if (*written) tidy(record.name, record.bytes);
  }
  CUBINERY_RETURN_IF_ERROR(sync(entries));
  const std::vector<std::string> left = names_with(writable, "", names_.now());
  result.evicted = static_cast<std::uint64_t>(
      std::count_if(taken.begin(), taken.end(), [&](const std::string& name) {
        return !std::binary_search(left.begin(), left.end(), name);
      }));
  return result;
}

}  // namespace cubinery
