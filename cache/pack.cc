#include "cache/pack.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cache/bytes.h"
#include "cache/paths.h"
#include "cache/system_call.h"

namespace cubinery {
namespace {

// Persistent: the grammar of docs/cache_format.md.
constexpr std::string_view kPackMagic = "CUBIPACK";
constexpr std::size_t kPackFormatOffset = 8;
constexpr std::size_t kIndexLengthOffset = 12;
constexpr std::size_t kPackHeaderBytes = 16;
constexpr std::size_t kRecordBytes = 24;  // without the name

// Half a million entries.  A length that lies must not eat the memory.
constexpr std::size_t kMaxIndexBytes = std::size_t{64} << 20;

constexpr const char* kTruncatedPack = "truncated";

// The front of a pack up to its length; empty when it is one.
std::string header_trouble(std::string_view header) {
  if (!is_pack(header)) return "not a pack";
  if (header.size() < kPackFormatOffset + 4) return kTruncatedPack;
  const std::uint32_t format = read_u32(header, kPackFormatOffset);
  if (format > kPackFormat) return to_string(EntryProblem::kNewer);
  if (format != kPackFormat) return "not a pack";
  return header.size() < kPackHeaderBytes ? kTruncatedPack : "";
}

// nullopt: not an index that encode_pack_front() writes.
std::optional<std::vector<Pack::Record>> parse_index(std::string_view index, std::uint64_t offset) {
  std::vector<Pack::Record> records;
  while (!index.empty()) {
    if (index.size() < kRecordBytes) return std::nullopt;
    Pack::Record record;
    record.offset = offset;
    record.bytes = read_u32(index, 4);
    record.checksum = index.substr(8, kChecksumBytes);
    const std::size_t name_bytes = read_u32(index, 0);
    index.remove_prefix(kRecordBytes);
    if (name_bytes > index.size()) return std::nullopt;
    record.name = index.substr(0, name_bytes);
    index.remove_prefix(name_bytes);
    if (!paths::version_in(record.name)) return std::nullopt;
    if (!records.empty() && record.name <= records.back().name) return std::nullopt;
    if (record.bytes > Env::kMaxFileBytes) return std::nullopt;
    offset += record.bytes;  // no overflow: half a million times 256 MiB
    records.push_back(std::move(record));
  }
  if (records.empty()) return std::nullopt;
  return records;
}

// The records of an open file, or why it has none.
std::error_code read_index(const OpenFile& file, std::vector<Pack::Record>* records,
                           std::string* trouble) {
  std::string bytes;
  const auto refuse = [&](std::string why) {
    *trouble = std::move(why);
    return std::error_code();
  };
  if (const std::error_code error = file.read_at(0, kPackHeaderBytes, &bytes)) return error;
  if (std::string why = header_trouble(bytes); !why.empty()) return refuse(std::move(why));
  const std::size_t index_bytes = read_u32(bytes, kIndexLengthOffset);
  const std::size_t front_bytes = kPackHeaderBytes + index_bytes + kChecksumBytes;
  if (index_bytes > kMaxIndexBytes) return refuse("index");
  if (const std::error_code error = file.read_at(0, front_bytes, &bytes)) return error;
  if (bytes.size() != front_bytes) return refuse(kTruncatedPack);
  const std::string_view front = std::string_view(bytes).substr(0, front_bytes - kChecksumBytes);
  if (std::string_view(bytes).substr(front.size()) != checksum(front)) {
    return refuse(to_string(EntryProblem::kChecksum));
  }
  std::optional<std::vector<Pack::Record>> parsed =
      parse_index(front.substr(kPackHeaderBytes), front_bytes);
  if (!parsed) return refuse("index");
  if (parsed->back().offset + parsed->back().bytes != file.info().bytes) {
    return refuse(kTruncatedPack);
  }
  *records = *std::move(parsed);
  return {};
}

// Error: the file cannot be read.
std::error_code open_once(Env& env, const std::string& path, PackFile* file) {
  std::unique_ptr<OpenFile> open;
  if (const std::error_code error = env.open(path, &open)) return error;
  file->info = open->info();
  std::vector<Pack::Record> records;
  if (const std::error_code error = read_index(*open, &records, &file->trouble)) return error;
  if (file->trouble.empty()) {
    file->pack = std::make_shared<const Pack>(std::move(open), std::move(records));
  }
  return {};
}

}  // namespace

PackedEntry packed_entry(std::string name, std::string_view entry_bytes) {
  return {.name = std::move(name),
          .bytes = static_cast<std::uint32_t>(entry_bytes.size()),
          .checksum = std::string(entry_bytes.substr(entry_bytes.size() - kChecksumBytes))};
}

std::string encode_pack_front(const std::vector<PackedEntry>& entries) {
  std::string index;
  for (const PackedEntry& entry : entries) {
    append_u32(&index, entry.name.size());
    append_u32(&index, entry.bytes);
    index += entry.checksum;
    index += entry.name;
  }
  std::string front(kPackMagic);
  append_u32(&front, kPackFormat);
  append_u32(&front, index.size());
  front += index;
  front += checksum(front);
  return front;
}

bool is_pack(std::string_view front) { return front.starts_with(kPackMagic); }

const Pack::Record* Pack::first_from(std::string_view name) const {
  return std::lower_bound(
      records_.data(), records_.data() + records_.size(), name,
      [](const Record& record, std::string_view at) { return record.name < at; });
}

const Pack::Record* Pack::find(std::string_view name) const {
  const Record* const found = first_from(name);
  return found != records_.data() + records_.size() && found->name == name ? found : nullptr;
}

EntryFile Pack::read(const Record& record) const {
  EntryFile file;
  std::string bytes;
  if (const std::error_code error = file_->read_at(record.offset, record.bytes, &bytes)) {
    file.trouble = io_error("read", record.name, error).message();
    if (cubinery::is_stale(error)) stale_ = true;
  } else if (std::string_view(bytes).ends_with(record.checksum)) {
    file = check_entry(bytes, record.name);
  } else {
    file.problem = bytes.size() < record.bytes ? EntryProblem::kTruncated : EntryProblem::kChecksum;
    file.trouble = to_string(file.problem);
  }
  file.info = info();
  file.info.bytes = record.bytes;
  return file;
}

std::optional<Identity> Pack::read_identity(const Record& record) const {
  std::optional<Identity> identity;
  const std::error_code error =
      cubinery::read_identity(*file_, record.offset, record.name, &identity);
  if (cubinery::is_stale(error)) stale_ = true;
  return identity;
}

PackFile open_pack(Env& env, const std::string& path) {
  PackFile file;
  const std::error_code error = retry_stale([&] { return open_once(env, path, &file); });
  if (error) file.trouble = io_error("read", path, error).message();
  return file;
}

}  // namespace cubinery
