#include "cache/layer.h"

#include <fmt/format.h>

#include "cache/paths.h"
#include "cache/system_call.h"

namespace cubinery {

std::string Layer::path_of(std::string_view name) const {
  return fmt::format("{}/{}", pack ? path : paths::entries_dir(path), name);
}

std::error_code Layer::list(Env& env, std::vector<DirEntry>* files) const {
  files->clear();
  if (!pack) {
    const std::error_code error = env.list(paths::entries_dir(path), files);
    std::erase_if(*files, [](const DirEntry& file) { return !paths::version_in(file.name); });
    return is_absent(error) ? std::error_code() : error;
  }
  for (const Pack::Record& record : pack->records()) {
    files->push_back({record.name, pack->info()});
    files->back().info.bytes = record.bytes;
  }
  return {};
}

std::vector<DirEntry> Layer::files(Env& env) const {
  std::vector<DirEntry> files;
  (void)list(env, &files);
  return files;
}

Status Layer::check() const {
  if (absent) return Status(Code::kIo, fmt::format("{}: no such directory or pack", path));
  if (trouble.empty()) return {};
  return Status(Code::kIo, fmt::format("nothing is loaded from {}: {}", path, trouble));
}

Status Layer::check_listed(Env& env) const {
  CUBINERY_RETURN_IF_ERROR(check());
  std::vector<DirEntry> files;
  const std::error_code error = list(env, &files);
  return error ? io_error("list", paths::entries_dir(path), error) : Status();
}

EntryFile Layer::read(Env& env, std::string_view name, const Trust& trust) {
  EntryFile file = read_once(env, name, trust);
  if (reopen_stale(env, trust)) return read_once(env, name, trust);
  return file;
}

std::optional<Identity> Layer::read_identity(Env& env, std::string_view name, const Trust& trust) {
  std::optional<Identity> identity = read_identity_once(env, name);
  if (reopen_stale(env, trust)) return read_identity_once(env, name);
  return identity;
}

bool Layer::reopen_stale(Env& env, const Trust& trust) {
  if (!pack || !pack->is_stale()) return false;
  const bool was_good = trouble.empty();
  *this = open_layer(env, path, trust);
  if (was_good && !trouble.empty()) pack = nullptr;  // whoever asks has seen no trouble
  return true;
}

EntryFile Layer::read_once(Env& env, std::string_view name, const Trust& trust) const {
  if (is_broken_pack()) {
    EntryFile file;
    file.trouble = trouble;
    return file;
  }
  if (!pack) return read_entry_file(env, path_of(name), trust);
  const Pack::Record* record = pack->find(name);
  return record != nullptr ? pack->read(*record) : EntryFile{};
}

std::optional<Identity> Layer::read_identity_once(Env& env, std::string_view name) const {
  if (pack) {
    const Pack::Record* record = pack->find(name);
    return record != nullptr ? pack->read_identity(*record) : std::nullopt;
  }
  std::optional<Identity> identity;
  (void)retry_stale([&] {
    std::unique_ptr<OpenFile> file;
    if (const std::error_code error = env.open(path_of(name), &file)) return error;
    return cubinery::read_identity(*file, 0, name, &identity);
  });
  return identity;
}

Layer open_layer(Env& env, const std::string& path, const Trust& trust,
                 std::shared_ptr<const Pack> pack) {
  Layer layer;
  layer.path = path;
  layer.pack = std::move(pack);
  FileInfo info;
  const std::error_code error = layer.pack ? std::error_code() : env.stat(path, &info);
  layer.absent = is_absent(error);
  if (error && !layer.absent) {
    layer.trouble = io_error("examine", path, error).message();
    return layer;
  }
  if (layer.pack) {
    layer.info = layer.pack->info();
  } else if (!error && info.kind == FileKind::kRegular) {
    PackFile file = open_pack(env, path);
    layer.info = file.info;
    layer.pack = std::move(file.pack);
    layer.trouble = std::move(file.trouble);
  } else {
    return layer;
  }
  const Status owner = check_owner(env, path, layer.info, trust);
  if (!owner.ok()) layer.trouble = owner.message();
  return layer;
}

EntryFile read_stored_entry(Env& env, const std::string& path, const Trust& trust) {
  FileInfo info;
  // "pack/name" is no path to the system.
  const std::error_code error = env.stat(path, &info);
  if (error != std::errc::not_a_directory) return read_entry_file(env, path, trust);
  Layer layer = open_layer(env, paths::parent(path), trust);
  if (layer.trouble.empty()) return layer.read(env, paths::file_name(path), trust);
  EntryFile file;
  file.trouble = layer.trouble;
  return file;
}

}  // namespace cubinery
