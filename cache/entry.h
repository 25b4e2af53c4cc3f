// One cache entry as bytes; docs/cache_format.md is its grammar.  Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/identity.h"

namespace cubinery {

struct Entry {
  Identity identity;
  std::string
      metadata;  // a JSON object: symbol, registers, shared memory, spills, compile time, log
  std::string cubin;

  bool operator==(const Entry&) const = default;
};

// Persistent: bytes change, this changes.
inline constexpr std::uint32_t kEntryFormat = 1;

enum class EntryProblem : int {
  kNone,
  kTruncated,  // the size is not what the lengths say, too long included
  kForeign,    // the magic is not ours
  kNewer,      // a format number above kEntryFormat
  kChecksum,
  kIdentity,  // the identity is no identity, or not the one that the file's name stands for
};
// "truncated", "not an entry", "newer format", "checksum", "identity"; "none" for kNone.
const char* to_string(EntryProblem problem);

// The size of what encode_entry() returns.
std::uint64_t encoded_bytes(const Entry& entry);
// Requires: each part is shorter than 4 GiB.
std::string encode_entry(const Entry& entry);
// kNone and the entry, or what is wrong with the bytes; then *entry is as it was.  The metadata's
// JSON is not looked at.
EntryProblem decode_entry(std::string_view bytes, Entry* entry);

// Where the identity ends in an entry that begins with `front`; 0: no entry of this format, or too
// little of it to say.
std::size_t identity_end(std::string_view front);
// The identity of an entry that begins with `front`; nullopt: there is none, or not all of it.
// Nothing vouches for it: the checksum is at the end.
std::optional<Identity> decode_identity(std::string_view front);

}  // namespace cubinery
