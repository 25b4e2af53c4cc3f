#include "cache/entry.h"

#include <algorithm>
#include <optional>

#include "cache/bytes.h"

namespace cubinery {
namespace {

// Persistent: the grammar of docs/cache_format.md.
constexpr std::string_view kMagic = "CUBINERY";
constexpr std::size_t kFormatOffset = 8;
constexpr std::size_t kIdentityLengthOffset = 12;
constexpr std::size_t kMetadataLengthOffset = 16;
constexpr std::size_t kCubinLengthOffset = 20;
constexpr std::size_t kHeaderBytes = 24;

// The front of a file up to and including the format: what every format, past and future, has in
// common.
EntryProblem check_format(std::string_view bytes) {
  const std::size_t shared = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, shared) != kMagic.substr(0, shared)) return EntryProblem::kForeign;
  if (bytes.size() < kFormatOffset + 4) return EntryProblem::kTruncated;
  const std::uint32_t format = read_u32(bytes, kFormatOffset);
  if (format > kEntryFormat) return EntryProblem::kNewer;
  return format == kEntryFormat ? EntryProblem::kNone : EntryProblem::kForeign;
}

}  // namespace

const char* to_string(EntryProblem problem) {
  switch (problem) {
    case EntryProblem::kNone:
      return "none";
    case EntryProblem::kTruncated:
      return "truncated";
    case EntryProblem::kForeign:
      return "not an entry";
    case EntryProblem::kNewer:
      return "newer format";
    case EntryProblem::kChecksum:
      return "checksum";
    case EntryProblem::kIdentity:
      return "identity";
  }
  return "unknown";
}

std::uint64_t encoded_bytes(const Entry& entry) {
  return std::uint64_t{kHeaderBytes} + to_text(entry.identity).size() + entry.metadata.size() +
         entry.cubin.size() + kChecksumBytes;
}

std::string encode_entry(const Entry& entry) {
  const std::string identity = to_text(entry.identity);
  std::string bytes;
  bytes.reserve(static_cast<std::size_t>(encoded_bytes(entry)));
  bytes += kMagic;
  append_u32(&bytes, kEntryFormat);
  append_u32(&bytes, identity.size());
  append_u32(&bytes, entry.metadata.size());
  append_u32(&bytes, entry.cubin.size());
  bytes += identity;
  bytes += entry.metadata;
  bytes += entry.cubin;
  bytes += checksum(bytes);
  return bytes;
}

EntryProblem decode_entry(std::string_view bytes, Entry* entry) {
  const EntryProblem problem = check_format(bytes);
  if (problem != EntryProblem::kNone) return problem;
  if (bytes.size() < kHeaderBytes + kChecksumBytes) return EntryProblem::kTruncated;
  const std::size_t identity_bytes = read_u32(bytes, kIdentityLengthOffset);
  const std::size_t metadata_bytes = read_u32(bytes, kMetadataLengthOffset);
  const std::size_t cubin_bytes = read_u32(bytes, kCubinLengthOffset);
  // Three 32-bit lengths cannot overflow a 64-bit sum.
  static_assert(sizeof(std::size_t) == 8);
  if (bytes.size() - kHeaderBytes - kChecksumBytes !=
      identity_bytes + metadata_bytes + cubin_bytes) {
    return EntryProblem::kTruncated;
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (bytes.substr(body.size()) != checksum(body)) return EntryProblem::kChecksum;

  const std::string_view text = body.substr(kHeaderBytes, identity_bytes);
  std::optional<Identity> identity = parse_identity(text);
  if (!identity) return EntryProblem::kIdentity;
  entry->identity = std::move(*identity);
  entry->metadata = body.substr(kHeaderBytes + identity_bytes, metadata_bytes);
  entry->cubin = body.substr(kHeaderBytes + identity_bytes + metadata_bytes);
  return EntryProblem::kNone;
}

std::size_t identity_end(std::string_view front) {
  if (check_format(front) != EntryProblem::kNone || front.size() < kHeaderBytes) return 0;
  return kHeaderBytes + read_u32(front, kIdentityLengthOffset);
}

std::optional<Identity> decode_identity(std::string_view front) {
  const std::size_t end = identity_end(front);
  if (end == 0 || end > front.size()) return std::nullopt;
  return parse_identity(front.substr(kHeaderBytes, end - kHeaderBytes));
}

}  // namespace cubinery
