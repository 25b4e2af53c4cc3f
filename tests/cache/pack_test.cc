// The bytes of packs, and what is refused.
#include "cache/pack.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cache/bytes.h"
#include "cache/paths.h"
#include "tests/cache/mem_env.h"
#include "tests/cache/sample.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::MemEnv;
using test::numbered_entry;
using test::sample_entry;

const std::string kPath = "/dir/pack";
constexpr std::size_t kHeader = 16;  // magic, format, length of the index

std::string pack_golden_path() { return CUBINERY_TEST_DIR "/golden/pack_v1.pack"; }

// Entries by name.
using Packed = std::map<std::string, std::string>;

std::pair<const std::string, std::string> packed(const Entry& entry) {
  return {paths::entry_name(entry.identity), encode_entry(entry)};
}

std::string encode_pack(const Packed& entries) {
  std::vector<PackedEntry> index;
  std::string bytes;
  for (const auto& [name, entry] : entries) {
    index.push_back(packed_entry(name, entry));
    bytes += entry;
  }
  return encode_pack_front(index) + bytes;
}

std::string two_entries() {
  return encode_pack({packed(sample_entry()), packed(numbered_entry(1))});
}

PackFile open_bytes(const std::string& bytes) {
  MemEnv env;
  env.files()[kPath] = {bytes, {}};
  return open_pack(env, kPath);
}

std::string trouble_of(const std::string& bytes) {
  const PackFile file = open_bytes(bytes);
  CHECK((file.pack == nullptr) == !file.trouble.empty());
  return file.trouble;
}

struct Record {
  std::string name;
  std::size_t name_bytes;
  std::size_t entry_bytes;
};

Record record_of(const Entry& entry) {
  const auto [name, bytes] = packed(entry);
  return {name, name.size(), bytes.size()};
}

// A pack whose index says anything, with the right checksum.
std::string with_index(const std::vector<Record>& records, std::size_t index_bytes_off = 0) {
  std::string index;
  for (const Record& record : records) {
    append_u32(&index, record.name_bytes);
    append_u32(&index, record.entry_bytes);
    index += std::string(kChecksumBytes, 'c') + record.name;
  }
  std::string bytes = "CUBIPACK";
  append_u32(&bytes, kPackFormat);
  append_u32(&bytes, index.size() + index_bytes_off);
  bytes += index;
  return bytes + checksum(bytes);
}

TEST_CASE("APackHoldsTheBytesOfItsEntries", "[cache]") {
  const std::string bytes = two_entries();
  const PackFile file = open_bytes(bytes);
  REQUIRE(file.pack);
  CHECK(file.trouble.empty());
  REQUIRE(file.pack->records().size() == 2);
  for (const Entry& entry : {sample_entry(), numbered_entry(1)}) {
    const auto [name, whole] = packed(entry);
    const Pack::Record* record = file.pack->find(name);
    REQUIRE(record != nullptr);
    CHECK(bytes.substr(static_cast<std::size_t>(record->offset), record->bytes) == whole);
    const EntryFile read = file.pack->read(*record);
    CHECK(read.entry == entry);
    CHECK(read.trouble.empty());
    CHECK(read.info.bytes == whole.size());
    CHECK(file.pack->read_identity(*record) == entry.identity);
  }
  CHECK(file.pack->find("") == nullptr);
  CHECK(file.pack->find(paths::entry_name(numbered_entry(2).identity)) == nullptr);
}

TEST_CASE("APackDoesNotDependOnTheOrderOfItsEntries", "[cache]") {
  CHECK(encode_pack({packed(numbered_entry(1)), packed(sample_entry())}) == two_entries());
}

TEST_CASE("ATruncatedOrLongerPackIsSkipped", "[cache]") {
  const std::string bytes = two_entries();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    INFO("first " << size << " bytes");
    REQUIRE(trouble_of(bytes.substr(0, size)) == (size < 8 ? "not a pack" : "truncated"));
  }
  CHECK(trouble_of(bytes + '\0') == "truncated");
}

TEST_CASE("AnyFlippedBitOfAPackIsFound", "[cache]") {
  const std::string bytes = two_entries();
  const std::size_t front =
      static_cast<std::size_t>(open_bytes(bytes).pack->records().front().offset);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << i % 8));
    INFO("byte " << i);
    const PackFile file = open_bytes(flipped);
    // In front the pack is damaged, behind it one entry.
    REQUIRE((file.pack == nullptr) == (i < front));
    if (!file.pack) continue;
    int good = 0;
    for (const Pack::Record& record : file.pack->records()) {
      const EntryFile read = file.pack->read(record);
      REQUIRE(read.entry.has_value() == read.trouble.empty());
      good += read.entry ? 1 : 0;
    }
    REQUIRE(good == 1);
  }
}

TEST_CASE("OtherFilesAreNoPacks", "[cache]") {
  CHECK(trouble_of("") == "not a pack");
  CHECK(trouble_of(encode_entry(sample_entry())) == "not a pack");
  std::string bytes = two_entries();
  bytes[8] = kPackFormat + 1;
  CHECK(trouble_of(bytes) == "newer format");
  CHECK(trouble_of(bytes.substr(0, 12)) == "newer format");
  bytes[8] = 0;
  CHECK(trouble_of(bytes) == "not a pack");
}

TEST_CASE("AnIndexThatLiesIsRefused", "[cache]") {
  const Record good = record_of(sample_entry());
  const Record other = record_of(numbered_entry(1));
  const std::vector<Record> sorted =
      good.name < other.name ? std::vector<Record>{good, other} : std::vector<Record>{other, good};
  // The entries are missing: else nothing would be wrong.
  CHECK(trouble_of(with_index(sorted)) == "truncated");

  CHECK(trouble_of(with_index({})) == "index");
  CHECK(trouble_of(with_index({good, good})) == "index");
  CHECK(trouble_of(with_index({sorted[1], sorted[0]})) == "index");
  for (const std::size_t bytes : {std::size_t{0}, good.name_bytes - 1, good.name_bytes + 1,
                                  std::size_t{0x7fffffff}, std::size_t{0xffffffff}}) {
    Record record = good;
    record.name_bytes = bytes;
    CHECK(trouble_of(with_index({record})) == "index");
    CHECK(trouble_of(with_index({record, other})) == "index");
  }
  for (const std::size_t bytes : {std::size_t{0x80000000}, std::size_t{0xffffffff}}) {
    Record record = good;
    record.entry_bytes = bytes;
    CHECK(trouble_of(with_index({record})) == "index");
  }
  for (const char* name : {"", "x", "../../etc/passwd", "README", "row_scale-0011-nvrtc1.entry"}) {
    const std::string text = name;
    CHECK(trouble_of(with_index({{text, text.size(), good.entry_bytes}})) == "index");
  }
}

TEST_CASE("AnIndexOfAnyLengthEatsNoMemory", "[cache]") {
  // Beyond the end of the file, and beyond every end.
  CHECK(trouble_of(with_index({record_of(sample_entry())}, 1)) == "truncated");
  CHECK(trouble_of(with_index({record_of(sample_entry())}, 0x1000000)) == "truncated");
  CHECK(trouble_of(with_index({}, 0xffffffff)) == "index");
  // A real file of that size, of which nothing but the front is there.
  const test::TempDir temp;
  std::string bytes = with_index({}, 0xffffffff);
  test::write_bytes(temp.path() + "/pack", bytes);
  std::filesystem::resize_file(temp.path() + "/pack", std::uintmax_t{1} << 40);
  CHECK(open_pack(*posix_env(), temp.path() + "/pack").trouble == "index");
  bytes = with_index({}, std::size_t{32} << 20);
  test::write_bytes(temp.path() + "/pack", bytes);
  CHECK(open_pack(*posix_env(), temp.path() + "/pack").trouble == "truncated");
}

TEST_CASE("EntriesOfNoSizeAreMissing", "[cache]") {
  Record record = record_of(sample_entry());
  record.entry_bytes = 0;
  const PackFile file = open_bytes(with_index({record}));
  REQUIRE(file.pack);
  CHECK(file.pack->read(file.pack->records()[0]).problem == EntryProblem::kChecksum);
  CHECK_FALSE(file.pack->read_identity(file.pack->records()[0]));
}

TEST_CASE("AnEntryUnderTheNameOfAnotherIsMissing", "[cache]") {
  const PackFile file =
      open_bytes(encode_pack({{packed(numbered_entry(1)).first, packed(sample_entry()).second}}));
  REQUIRE(file.pack);
  CHECK(file.pack->read(file.pack->records()[0]).problem == EntryProblem::kIdentity);
  CHECK_FALSE(file.pack->read_identity(file.pack->records()[0]));
}

TEST_CASE("WhatIsNoFileIsNoPack", "[cache]") {
  const test::TempDir temp;
  CHECK(open_pack(*posix_env(), temp.path()).trouble.starts_with("cannot read "));
  CHECK(open_pack(*posix_env(), temp.path() + "/absent").trouble.starts_with("cannot read "));
}

TEST_CASE("PackBytesAreThoseOfTheGolden", "[cache]") {
  const std::string golden = test::read_bytes(pack_golden_path());
  REQUIRE_FALSE(golden.empty());
  // Bytes change: kPackFormat changes, and the old golden stays as a test of what is refused.
  CHECK(two_entries() == golden);
  REQUIRE(open_bytes(golden).pack);
}

// Not run by default: `cache_tests "[.golden]"` writes the file for a new format.
TEST_CASE("WriteGoldenPack", "[.golden]") { test::write_bytes(pack_golden_path(), two_entries()); }

}  // namespace
}  // namespace cubinery
