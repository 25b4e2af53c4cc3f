// A place that entries are read from: a cache directory, or a pack.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry_file.h"
#include "cache/env.h"
#include "cache/pack.h"
#include "cache/trust.h"

namespace cubinery {

struct Layer {
  std::string path;
  bool writable = false;
  FileInfo info{.kind = FileKind::kDirectory};  // of a pack its file
  std::shared_ptr<const Pack> pack;             // null: a directory, or a pack that cannot be read
  std::string trouble;                          // why nothing may be loaded from it
  bool absent = false;                          // an empty directory, then

  bool is_broken_pack() const { return !pack && info.kind == FileKind::kRegular; }
  // "<dir>/entries/<name>", "<pack>/<name>".
  std::string path_of(std::string_view name) const;
  // Entries in no particular order; the time of a pack's entries is the pack's.  An error: there
  // may be more of them.
  std::error_code list(Env& env, std::vector<DirEntry>* files) const;
  // The same where fewer will do.
  std::vector<DirEntry> files(Env& env) const;
  // OK, or why nothing is loaded from it: it is absent, or its trouble.
  Status check() const;
  // The same, or why it cannot be listed.
  Status check_listed(Env& env) const;
  // Both open a pack again, once, that another one has replaced on a network file system: the layer
  // is the new one then, with its index.
  EntryFile read(Env& env, std::string_view name, const Trust& trust);
  std::optional<Identity> read_identity(Env& env, std::string_view name, const Trust& trust);

 private:
  EntryFile read_once(Env& env, std::string_view name, const Trust& trust) const;
  std::optional<Identity> read_identity_once(Env& env, std::string_view name) const;
  // False: there is no need to.
  bool reopen_stale(Env& env, const Trust& trust);
};

// What there is at the path of a read-only layer, and whether it may be loaded from: owner and
// permissions, the index of a pack.  An absent one is an empty directory.  `pack`:
// it is known to be this one.
Layer open_layer(Env& env, const std::string& path, const Trust& trust,
                 std::shared_ptr<const Pack> pack = nullptr);

// Reads and checks the entry at a path that Layer::path_of() made.
EntryFile read_stored_entry(Env& env, const std::string& path, const Trust& trust);

}  // namespace cubinery
