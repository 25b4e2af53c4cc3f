#include "cache/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cache/entry_file.h"
#include "cache/paths.h"
#include "cache/version_order.h"

namespace cubinery {
namespace {

// Renewing a stamp is a write to the disk: not at each hit.
constexpr std::int64_t kStampAgeNs = 600 * kNsPerSecond;

constexpr std::uint32_t kLockMode = 0660;  // where a group shares the directory

bool is_wanted(const Identity& wanted, Identity found) {
  if (wanted.nvrtc.empty()) found.nvrtc.clear();
  return found == wanted;
}

Status bad_name(const Identity& identity) {
  return Status(
      Code::kInvalidArgument,
      fmt::format("cache: no file can be named after kernel \"{}\" and NVRTC version \"{}\"",
                  identity.kernel, identity.nvrtc));
}

Status no_directory() { return Status(Code::kIo, "cache: there is no writable directory"); }

}  // namespace

StoreOptions store_options(const Options& options) {
  return {.dir = options.cache_dir,
          .layers = options.cache_layers,
          .limit_bytes = options.cache_limit_bytes,
          .trust = trust_of(options),
          .lock_wait = options.lock_wait,
          .log = options.log};
}

struct Store::Found {
  Entry entry;
  std::int64_t mtime_ns = 0;
};

Store::Store(StoreOptions options, std::shared_ptr<Env> env)
    : options_(std::move(options)), env_(env ? std::move(env) : posix_env()) {}

Store::~Store() = default;

std::optional<StoredEntry> Store::lookup(const Identity& wanted, const AcceptEntry& accept) {
  names_.forget();
  return lookup_since(Names::kAnyTime, wanted, accept);
}

std::optional<StoredEntry> Store::lookup_since(Names::Moment since, const Identity& wanted,
                                               const AcceptEntry& accept) {
  std::optional<StoredEntry> stored;
  visit_layers([&](Layer& layer) {
    if (usable(layer)) stored = lookup_in(layer, since, wanted, accept);
    return stored.has_value();
  });
  return stored;
}

std::set<std::string> Store::versions(const Identity& request) const {
  std::set<std::string> versions;
  if (!paths::is_kernel_name(request.kernel)) return versions;
  visit_layers([&](const Layer& layer) {
    if (!layer.trouble.empty()) return false;
    for (const std::string& name :
         names_with(layer, paths::entry_prefix(request), Names::kAnyTime)) {
      versions.insert(*paths::version_in(name));
    }
    return false;
  });
  return versions;
}

Result<std::string> Store::publish(const Entry& entry, const AcceptEntry& accept) {
  const Result<bool> written = write_entry(entry, accept);
  Status error = written ? sync(paths::entries_dir(options_.dir)) : written.error().clone();
  if (!error.ok()) {
    ++failed_writes_;
    warn_once("publish", error.message());
    return error;
  }
  if (*written) tidy(paths::entry_name(entry.identity), encoded_bytes(entry));
  return path_of(entry.identity);
}

std::unique_ptr<MakeLock> Store::lock(const Identity& wanted, WaitBudget* budget) {
  // entries/ too: what the holder puts into it is looked for when the lock is had, and a directory
  // that has been asked for in vain stays absent to clients of network file systems for a while.
  if (!prepare({paths::locks_dir(options_.dir)}).ok()) return nullptr;
  const std::string path = paths::lock_path(options_.dir, wanted);
  WaitBudget own_budget(options_.lock_wait);
  std::unique_ptr<MakeLock> lock =
      wait_for_lock(*env_, {.path = path,
                            .wait = options_.lock_wait,
                            .budget = budget != nullptr ? *budget : own_budget,
                            .lost = lost_holders_,
                            .tell = [&](std::string_view text) {
                              log(LogLevel::kInfo, fmt::format("{}: {}", wanted.kernel, text));
                            }});
  // For another user to take it, should it stay.
  if (lock) share_made(*env_, path, kLockMode, options_.trust);
  return lock;
}

void Store::for_each(const std::function<void(ListedEntry)>& show) const {
  for (Layer& layer : layers()) {
    if (layer.is_broken_pack()) {
      show({layer.path, layer.info.bytes, layer.info.mtime_ns / kNsPerSecond, layer.trouble,
            std::nullopt});
    }
    std::vector<DirEntry> files = layer.files(*env_);
    std::sort(files.begin(), files.end(),
              [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    for (const DirEntry& file : files) {
      EntryFile read = layer.read(*env_, file.name, options_.trust);
      if (!read.entry && read.trouble.empty()) continue;  // it has disappeared meanwhile
      show({layer.path_of(file.name), file.info.bytes, file.info.mtime_ns / kNsPerSecond,
            read.entry ? layer.trouble : read.trouble, std::move(read.entry)});
    }
  }
}

std::vector<KnownEntry> Store::known(std::string_view kernel) const {
  const std::string prefix = kernel.empty() ? "" : fmt::format("{}-", kernel);
  std::vector<KnownEntry> known;
  const Names::Moment since = names_.now();
  // Many kernels may be missed at once: the first one reads, the others find what it has read.
  const std::lock_guard<std::mutex> guard(fronts_mutex_);
  for (Layer& layer : layers()) {
    for (const std::string& name : names_with(layer, prefix, since)) {
      if (std::optional<Identity> identity = identity_of(layer, name)) {
        known.push_back({layer.path_of(name), *std::move(identity)});
      }
    }
  }
  return known;
}

std::vector<Entry> Store::with_any_headers(const Identity& request, std::size_t most) const {
  std::vector<Entry> entries;
  if (!paths::is_kernel_name(request.kernel)) return entries;
  const std::lock_guard<std::mutex> guard(fronts_mutex_);
  visit_layers([&](Layer& layer) {
    if (!layer.trouble.empty()) return false;
    for (const std::string& name :
         names_with(layer, fmt::format("{}-", request.kernel), Names::kAnyTime)) {
      if (entries.size() == most) return true;
      std::optional<Identity> identity = identity_of(layer, name);
      if (!identity) continue;
      identity->headers_digest = request.headers_digest;
      identity->nvrtc = request.nvrtc;
      if (*identity != request) continue;
      EntryFile file = layer.read(*env_, name, options_.trust);
      if (file.entry && file.trouble.empty()) entries.push_back(*std::move(file.entry));
    }
    return false;
  });
  return entries;
}

Result<GcResult> Store::gc(std::optional<std::uint64_t> limit_bytes) {
  if (options_.dir.empty()) return no_directory();
  CUBINERY_RETURN_IF_ERROR(check_trusted(options_.dir));
  GcResult result;
  result.bytes_before = total_bytes(list_entries(*env_, options_.dir));
  sweep(*env_, options_.dir, options_.trust, &result);
  remove_damaged(*env_, options_.dir, options_.trust, &result);
  evict(*env_, options_.dir, limit_bytes.value_or(options_.limit_bytes), &result);
  if (result.bytes_before > 0 && prepare({paths::tmp_dir(options_.dir)}).ok()) {
    Eviction::measured(usage_place(), result.bytes_after);
  }
  return result;
}

std::string Store::path_of(const Identity& identity) const {
  if (options_.dir.empty()) return {};
  return paths::entries_dir(options_.dir) + "/" + paths::entry_name(identity);
}

Status Store::check_writable() {
  const std::string entries = paths::entries_dir(options_.dir);
  CUBINERY_RETURN_IF_ERROR(prepare({paths::tmp_dir(options_.dir)}));
  const std::string probe = temporary_path();
  const std::error_code error = env_->write_synced(probe, "probe", kFileMode);
  (void)env_->remove(probe);
  if (error) return io_error("write", probe, error);
  return sync(entries);
}

Status Store::check_trusted(const std::string& dir) const {
  CUBINERY_RETURN_IF_ERROR(check_owner(*env_, dir, options_.trust));
  if (!names_.has_entries(*env_, dir)) return Status();
  return check_owner(*env_, paths::entries_dir(dir), options_.trust);
}

void Store::visit_layers(const std::function<bool(Layer&)>& visit) const {
  const auto visits = [&](Layer layer) { return visit(layer); };
  if (!options_.dir.empty() && visits(writable_layer())) return;
  for (const std::string& path : options_.layers) {
    if (!path.empty() && visits(layer_at(path))) return;
  }
}

std::vector<Layer> Store::layers() const {
  std::vector<Layer> layers;
  visit_layers([&](Layer& layer) {
    layers.push_back(layer);
    return false;
  });
  return layers;
}

std::vector<UnlistedLayer> Store::unlisted() const {
  std::vector<UnlistedLayer> unlisted;
  std::vector<Layer> all = layers();
  for (Layer& layer : all) {
    if (layer.is_broken_pack()) continue;
    FileInfo info;
    if (layer.writable) layer.absent = is_absent(env_->stat(layer.path, &info));
    if (layer.writable && layer.absent && all.size() > 1) continue;
    const Status listed = layer.check_listed(*env_);
    if (!listed.ok()) unlisted.push_back({layer.path, layer.absent, std::string(listed.message())});
  }
  return unlisted;
}

Layer Store::writable_layer() const {
  Layer layer;
  layer.path = options_.dir;
  layer.writable = true;
  layer.trouble = check_trusted(options_.dir).message();
  return layer;
}

Layer Store::layer_at(const std::string& path) const {
  std::shared_ptr<const Pack> known;
  {
    const std::lock_guard<std::mutex> guard(packs_mutex_);
    const auto found = packs_.find(path);
    if (found != packs_.end() && found->second->is_stale()) {
      packs_.erase(found);
    } else if (found != packs_.end()) {
      known = found->second;
    }
  }
  Layer layer = open_layer(*env_, path, options_.trust, std::move(known));
  if (layer.pack) {
    const std::lock_guard<std::mutex> guard(packs_mutex_);
    layer.pack = packs_.try_emplace(path, layer.pack).first->second;  // a thread that was faster
  } else if (!layer.absent && layer.trouble.empty()) {
    layer.trouble = check_trusted(path).message();
  }
  return layer;
}

bool Store::usable(const Layer& layer) {
  const Status checked = layer.check();
  if (!checked.ok()) {
    warn_once(layer.path,
              fmt::format("{}{}", layer.absent ? "cache layer " : "", checked.message()));
  }
  return layer.trouble.empty();
}

std::vector<std::string> Store::names_with(const Layer& layer, const std::string& prefix,
                                           Names::Moment since) const {
  std::vector<std::string> names;
  if (layer.pack) {
    const std::vector<Pack::Record>& records = layer.pack->records();
    for (const Pack::Record* record = layer.pack->first_from(prefix);
         record != records.data() + records.size() && record->name.starts_with(prefix); ++record) {
      names.push_back(record->name);
    }
    return names;
  }
  const std::error_code error = names_.find(*env_, layer.path, prefix, since, &names);
  // A directory that may be searched and not listed: its files can be asked for by name only.
  if (error && paths::version_in(prefix)) names.push_back(prefix);
  return names;
}

std::vector<std::string> Store::candidates(const Layer& layer, const Identity& wanted,
                                           Names::Moment since) const {
  if (!paths::is_kernel_name(wanted.kernel)) return {};
  if (!wanted.nvrtc.empty()) {
    if (!paths::is_version(wanted.nvrtc)) return {};
    return names_with(layer, paths::entry_name(wanted), since);
  }
  std::vector<std::string> names = names_with(layer, paths::entry_prefix(wanted), since);
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return version_less(*paths::version_in(b), *paths::version_in(a));
  });
  return names;
}

std::optional<StoredEntry> Store::lookup_in(Layer& layer, Names::Moment since,
                                            const Identity& wanted, const AcceptEntry& accept) {
  std::set<std::string> tried;
  for (const Names::Moment moment : {Names::kAnyTime, since}) {
    for (const std::string& name : candidates(layer, wanted, moment)) {
      if (!tried.insert(name).second) continue;
      std::optional<Found> found = load(layer, name, wanted, accept);
      if (!found) continue;
      const std::string path = layer.path_of(name);
      if (layer.writable) renew_stamp(path, found->mtime_ns);
      return StoredEntry{std::move(found->entry), path, layer.writable};
    }
  }
  return std::nullopt;
}

void Store::pass_over(const std::string& path, std::string_view trouble) {
  ++damaged_;
  warn_once(path, fmt::format("passed over {}: {}", path, trouble));
}

std::optional<Store::Found> Store::load(Layer& layer, const std::string& name,
                                        const Identity& wanted, const AcceptEntry& accept) {
  EntryFile file = layer.read(*env_, name, options_.trust);
  const bool is_other = file.entry && !is_wanted(wanted, file.entry->identity);
  const std::string trouble = is_other
                                  ? to_string(EntryProblem::kIdentity)  // requests of one digest
                                  : trouble_with(file, accept);
  if (!trouble.empty()) {
    pass_over(layer.path_of(name), trouble);
    return std::nullopt;
  }
  if (!file.entry) return std::nullopt;
  return Found{std::move(*file.entry), file.info.mtime_ns};
}

std::optional<Identity> Store::identity_of(Layer& layer, const std::string& name) const {
  const std::string path = layer.path_of(name);
  const auto held = fronts_.find(path);
  if (held != fronts_.end()) return held->second;
  std::optional<Identity> identity = layer.read_identity(*env_, name, options_.trust);
  if (identity) fronts_.emplace(path, *identity);
  return identity;
}

void Store::renew_stamp(const std::string& path, std::int64_t mtime_ns) {
  const std::int64_t now = env_->now_ns();
  // A stamp from the future would keep its entry for ever.
  const bool recent = mtime_ns >= now - kStampAgeNs && mtime_ns <= now + kStampAgeNs;
  if (!recent) (void)env_->set_mtime(path, now);
}

Status Store::prepare(std::initializer_list<std::string> others) const {
  if (options_.dir.empty()) return no_directory();
  std::vector<std::string> subdirs = {paths::entries_dir(options_.dir)};
  subdirs.insert(subdirs.end(), others);
  // Before anything is created in a directory of somebody else's, and after: it may not have been
  // there.
  CUBINERY_RETURN_IF_ERROR(check_owner(*env_, options_.dir, options_.trust));
  bool is_new = false;
  for (const std::string& subdir : subdirs) {
    FileInfo info;
    const std::error_code error = env_->stat(subdir, &info);
    if (!error && info.kind == FileKind::kDirectory) {
      CUBINERY_RETURN_IF_ERROR(check_owner(*env_, subdir, info, options_.trust));
      continue;
    }
    is_new = true;
    if (const std::error_code make_error = make_dirs(*env_, subdir, options_.trust)) {
      return io_error("create", subdir, make_error);
    }
    CUBINERY_RETURN_IF_ERROR(check_owner(*env_, subdir, options_.trust));
  }
  return is_new ? check_owner(*env_, options_.dir, options_.trust) : Status();
}

std::string Store::temporary_path() {
  return paths::temporary_path(options_.dir, env_->process(), env_->host(), temporaries_++,
                               env_->random());
}

Result<bool> Store::write_entry(const Entry& entry, const AcceptEntry& accept) {
  const Identity& identity = entry.identity;
  if (!paths::is_kernel_name(identity.kernel) || !paths::is_version(identity.nvrtc)) {
    return bad_name(identity);
  }
  const std::string path = path_of(identity);
  if (encoded_bytes(entry) > Env::kMaxFileBytes) {
    return io_error("write", path, std::make_error_code(std::errc::file_too_large));
  }
  const std::string entries = paths::entries_dir(options_.dir);
  CUBINERY_RETURN_IF_ERROR(prepare({paths::tmp_dir(options_.dir)}));
  const std::string temporary = temporary_path();
  std::error_code error = env_->write_synced(temporary, encode_entry(entry), kFileMode);
  if (error == std::errc::file_exists) return io_error("write", path, error);  // somebody else's
  bool is_there = false;
  if (!error) {
    (void)env_->set_mtime(temporary, env_->now_ns());
    share_made(*env_, temporary, kFileMode, options_.trust);
    error = env_->rename_new(temporary, path);
  }
  if (error == std::errc::file_exists) {
    const EntryFile there = read_entry_file(*env_, path, options_.trust);
    is_there = there.entry && trouble_with(there, accept).empty();
    if (is_there) renew_stamp(path, there.info.mtime_ns);
    error = is_there ? std::error_code() : env_->rename(temporary, path);
  }
  if (error || is_there) (void)env_->remove(temporary);
  if (error) return io_error("write", path, error);
  names_.add(options_.dir, paths::entry_name(identity));
  return !is_there;
}

Status Store::sync(const std::string& dir) {
  const std::error_code error = env_->sync_dir(dir);
  return error ? io_error("sync", dir, error) : Status();
}

Eviction::Place Store::usage_place() {
  return {.env = *env_,
          .dir = options_.dir,
          .limit_bytes = options_.limit_bytes,
          .mode = kFileMode,
          .temporary = [this] { return temporary_path(); }};
}

void Store::tidy(const std::string& published_name, std::uint64_t bytes) {
  if (!eviction_.added(usage_place(), published_name, bytes)) return;
  GcResult ignored;
  sweep(*env_, options_.dir, options_.trust, &ignored);
}

void Store::log(LogLevel level, std::string_view text) const {
  if (options_.log) options_.log(level, text);
}

void Store::warn_once(const std::string& topic, std::string_view text) {
  {
    const std::lock_guard<std::mutex> guard(warned_mutex_);
    if (!warned_.insert(topic).second) return;
  }
  log(LogLevel::kWarning, text);
}

}  // namespace cubinery
