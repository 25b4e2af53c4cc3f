// Cubins on disk: one writable directory over any number of read-only layers, which are directories
// or packs.
//
// The disk is an accelerator, not a dependency: what cannot be read is a miss, what cannot be
// written is a warning, and the loser of a race uses its own bytes.  docs/cache_format.md describes
// directories and files.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry.h"
#include "cache/env.h"
#include "cache/eviction.h"
#include "cache/gc.h"
#include "cache/layer.h"
#include "cache/lock.h"
#include "cache/names.h"
#include "cache/trust.h"
#include "codegen/identity.h"
#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

struct StoreOptions {
  // `{}`: g++ warns about a designated initialiser that leaves a member without one out.
  std::string dir{};                  // writable; created at the first write; empty: there is none
  std::vector<std::string> layers{};  // read-only directories and packs, searched after dir
  std::uint64_t limit_bytes = std::uint64_t{1} << 30;
  Trust trust{};
  std::chrono::milliseconds lock_wait{60000};
  std::function<void(LogLevel, std::string_view)> log{};
};

// What an Options says of the store, its directory as it stands there.
StoreOptions store_options(const Options& options);

// One entry as lookups and listings return it.
struct StoredEntry {
  Entry entry;
  std::string path;
  bool writable_layer = false;
};

// A file that `ls` and `verify` found; `problem` is empty for a good one.
struct ListedEntry {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t last_used_unix = 0;
  std::string problem;  // "truncated", "checksum", "newer format", "not an entry", ...
  std::optional<Entry> entry;
};

// A layer that is absent, that others could have written, or that this user may not read.
struct UnlistedLayer {
  std::string path;
  bool is_absent = false;
  std::string why;  // names the path
};

struct ExportResult {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;     // of the pack
  std::uint64_t unusable = 0;  // passed over, and logged
};

struct ImportResult {
  std::uint64_t imported = 0;
  std::uint64_t present = 0;  // were there already
  std::uint64_t damaged = 0;  // passed over, and logged
  std::uint64_t evicted = 0;  // of those imported or present: the limit left no room for them
};

// An entry that is there, whether or not it can be used.
struct KnownEntry {
  std::string path;
  Identity identity;
};

// Thread-safe.  Several stores, in one process or many, may share a directory.
class Store {
 public:
  // Touches no file.  `env` is the seam for tests; null: the real file system.
  explicit Store(StoreOptions options, std::shared_ptr<Env> env = nullptr);
  ~Store();

  // The entry for `wanted`, from the first layer that has one; those behind it are not touched.  An
  // empty wanted.nvrtc accepts any compiler, the highest version first.  `accept` may reject an
  // entry that decodes well (its cubin does not fit its identity); the text says why.  Rejected,
  // damaged, foreign and newer entries are passed over, logged and counted.  A hit in the writable
  // layer renews its recency stamp.
  std::optional<StoredEntry> lookup(const Identity& wanted, const AcceptEntry& accept = nullptr);
  // The same for one of many kernels: what a directory had when it was last listed is found without
  // a new list, and what is missing may be missing at `since` only.
  std::optional<StoredEntry> lookup_since(Names::Moment since, const Identity& wanted,
                                          const AcceptEntry& accept);
  Names::Moment now() { return names_.now(); }
  // The compilers that made the entries of a request, each once, as far as lists that were made
  // before have them.
  std::set<std::string> versions(const Identity& request) const;

  // Writes the entry durably and atomically, then evicts if the directory passes its limit.  A good
  // entry that is there stays, unless `accept` rejects it.  Returns the entry's path.  An error
  // means only that the entry is not on disk, or not durably; it is counted, and the first one
  // logged.  kInvalidArgument: no file can be named after the kernel or the NVRTC version.  kIo:
  // all else.
  Result<std::string> publish(const Entry& entry, const AcceptEntry& accept = nullptr);

  // Waits at most lock_wait for whoever is making this entry, at most what is left of `budget`
  // where there is one, and not at all for who was waited for in vain and has not let go since.
  // nullptr: no lock was to be had (time ran out, the directory cannot be written, the file system
  // has no locks); go on without one.
  std::unique_ptr<MakeLock> lock(const Identity& wanted, WaitBudget* budget = nullptr);

  // Shows every entry of every layer, the writable one first, sorted by path; cubins are read and
  // verified, one at a time.  A pack that cannot be read is one entry with a problem.
  void for_each(const std::function<void(ListedEntry)>& show) const;

  // Layers that for_each() cannot list whole.  Not among them: packs that cannot be read, which it
  // names, and, above other layers, a writable directory that nothing was written to yet.
  std::vector<UnlistedLayer> unlisted() const;

  // The entries of one kernel (empty: of each) in every layer, from the fronts of their files,
  // which are read once per store: names say which identity they have.  For telling why there was a
  // miss.
  std::vector<KnownEntry> known(std::string_view kernel) const;

  // Whole entries of a request whose headers are not known yet, whatever theirs are, at most
  // `most`, as far as lists that were made before have them.  What cannot be used is left out.
  std::vector<Entry> with_any_headers(const Identity& request, std::size_t most) const;

  // Removes stale temporaries and lock files, damaged entries, and least recently used entries
  // until the directory holds at most `limit_bytes` (the store's own limit when not given).
  Result<GcResult> gc(std::optional<std::uint64_t> limit_bytes = std::nullopt);

  // Writes the entries of all layers that `wanted` names into one file, a pack, durably and
  // atomically; of two with one name the first layer's.  kInvalidArgument: there are none, or the
  // path is that of a file which is not a pack.  kIo: a layer cannot be listed or trusted, or the
  // file cannot be written.
  Result<ExportResult> export_pack(const std::string& path,
                                   const std::function<bool(const Identity&)>& wanted,
                                   const AcceptEntry& accept);
  // Publishes the entries of a pack that the writable directory lacks.  kInvalidArgument: it is no
  // pack that may be loaded, or is larger than the directory may be.  kIo: an entry cannot be
  // written; those before it are there.
  Result<ImportResult> import_pack(const std::string& path, const AcceptEntry& accept);

  // Where the entry is, or would be, in the writable directory; empty without one.
  std::string path_of(const Identity& identity) const;

  // OK, or why the writable directory cannot be used: for doctor.
  Status check_writable();
  // OK, or why entries of this directory are not loaded (owner, permissions); for doctor and logs.
  // A directory that does not exist is OK.
  Status check_trusted(const std::string& dir) const;

  std::uint64_t damaged() const { return damaged_; }
  std::uint64_t failed_writes() const { return failed_writes_; }
  const StoreOptions& options() const { return options_; }

 private:
  struct Found;
  // Never the group's to write, whatever the umask: such files are not loaded.
  static constexpr std::uint32_t kFileMode = 0644;

  // In the order of a lookup, until `visit` returns true.  A layer is examined when its turn comes.
  void visit_layers(const std::function<bool(Layer&)>& visit) const;
  std::vector<Layer> layers() const;
  Layer writable_layer() const;
  // A pack is opened once and kept.
  Layer layer_at(const std::string& path) const;
  // False: nothing is loaded from the layer, and that has been said.
  bool usable(const Layer& layer);
  // Those names in a layer that begin with `prefix`, in order, as they were at `since` or later.
  std::vector<std::string> names_with(const Layer& layer, const std::string& prefix,
                                      Names::Moment since) const;
  // Names that an entry for `wanted` has, the best first.
  std::vector<std::string> candidates(const Layer& layer, const Identity& wanted,
                                      Names::Moment since) const;
  std::optional<StoredEntry> lookup_in(Layer& layer, Names::Moment since, const Identity& wanted,
                                       const AcceptEntry& accept);
  // Counts and logs an entry that cannot be used.
  void pass_over(const std::string& path, std::string_view trouble);
  std::optional<Found> load(Layer& layer, const std::string& name, const Identity& wanted,
                            const AcceptEntry& accept);
  std::optional<Identity> identity_of(Layer& layer, const std::string& name) const;
  void renew_stamp(const std::string& path, std::int64_t mtime_ns);

  // Makes entries/ and these directories fit to be written to, or says why one is not.
  Status prepare(std::initializer_list<std::string> others) const;
  std::string temporary_path();
  // Whether a new entry went into the directory, rather than that one was there.
  Result<bool> write_entry(const Entry& entry, const AcceptEntry& accept);
  // Makes what was renamed in a directory durable.
  Status sync(const std::string& dir);
  Eviction::Place usage_place();
  struct Selection;
  Status select(const std::function<bool(const Identity&)>& wanted, const AcceptEntry& accept,
                Selection* selection);
  // Sets the bytes of the whole pack.
  Status write_pack(const std::string& path, const Selection& selection, std::uint64_t* bytes);
  Status check_importable(const Layer& layer) const;
  void tidy(const std::string& published_name, std::uint64_t bytes);

  void log(LogLevel level, std::string_view text) const;
  // Says nothing when it has spoken on this topic before.
  void warn_once(const std::string& topic, std::string_view text);

  const StoreOptions options_;
  const std::shared_ptr<Env> env_;
  std::atomic<std::uint64_t> damaged_{0};
  std::atomic<std::uint64_t> failed_writes_{0};
  std::atomic<std::uint64_t> temporaries_{0};  // written so far, for their names
  LostHolders lost_holders_;
  std::mutex warned_mutex_;
  std::set<std::string> warned_;  // guarded by warned_mutex_
  mutable std::mutex packs_mutex_;
  mutable std::map<std::string, std::shared_ptr<const Pack>> packs_;  // guarded by packs_mutex_
  mutable Names names_;
  Eviction eviction_;
  mutable std::mutex fronts_mutex_;
  mutable std::map<std::string, Identity> fronts_;  // by path; guarded by fronts_mutex_
};

}  // namespace cubinery
