#include "cli/entry_check.h"

#include <fmt/format.h>

#include "cache/layer.h"
#include "runtime/jit/context_state.h"

namespace cubinery {

std::optional<EntryTrouble> trouble_of(const ListedEntry& listed) {
  if (listed.problem == to_string(EntryProblem::kNewer)) return std::nullopt;
  for (const EntryProblem damage : {EntryProblem::kTruncated, EntryProblem::kForeign,
                                    EntryProblem::kChecksum, EntryProblem::kIdentity}) {
    if (listed.problem == to_string(damage)) return EntryTrouble{listed.problem, true};
  }
  if (!listed.entry) return EntryTrouble{listed.problem, false};
  if (const auto mismatch = cubin_mismatch(*listed.entry)) return EntryTrouble{*mismatch, true};
  if (!listed.problem.empty()) return EntryTrouble{listed.problem, false};
  return std::nullopt;
}

std::uint64_t entry_bytes(const std::string& path, const Trust& trust) {
  return read_stored_entry(*posix_env(), path, trust).info.bytes;
}

std::optional<std::string> check_entry_file(const std::string& path, const std::string& canonical,
                                            const std::string& arch, const Trust& trust) {
  const EntryFile file = read_stored_entry(*posix_env(), path, trust);
  if (!file.entry) return file.trouble.empty() ? "the entry is gone" : file.trouble;
  const Identity& identity = file.entry->identity;
  if (identity.key != canonical || identity.arch != arch) {
    return internal::about_key(
        fmt::format("the entry is of another kernel, {} for {}", identity.kernel, identity.arch),
        identity.key);
  }
  return cubin_mismatch(*file.entry);
}

}  // namespace cubinery
