#include "cache/entry.h"

#include <string>

#include "tests/cache/sample.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using test::sample_entry;
using test::sample_identity;

EntryProblem problem_of(const std::string& bytes) {
  Entry entry;
  return decode_entry(bytes, &entry);
}

std::string golden_path() { return CUBINERY_TEST_DIR "/golden/entry_v1.entry"; }

std::string with_format(std::string bytes, std::uint32_t format) {
  for (std::size_t i = 0; i < 4; ++i) bytes[8 + i] = static_cast<char>(format >> (8 * i));
  return bytes;
}

TEST_CASE("AnEntrySurvivesARoundTrip", "[cache]") {
  Entry decoded;
  REQUIRE(decode_entry(encode_entry(sample_entry()), &decoded) == EntryProblem::kNone);
  CHECK(decoded == sample_entry());
}

TEST_CASE("EmptyPartsSurviveARoundTrip", "[cache]") {
  const Entry empty;
  Entry decoded = sample_entry();
  REQUIRE(decode_entry(encode_entry(empty), &decoded) == EntryProblem::kNone);
  CHECK(decoded == empty);
}

TEST_CASE("EncodedBytesIsTheSize", "[cache]") {
  CHECK(encoded_bytes(sample_entry()) == encode_entry(sample_entry()).size());
}

TEST_CASE("TruncatedEntryIsTruncated", "[cache]") {
  const std::string bytes = encode_entry(sample_entry());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    INFO("first " << size << " bytes");
    REQUIRE(problem_of(bytes.substr(0, size)) == EntryProblem::kTruncated);
  }
}

TEST_CASE("AppendedBytesAreAProblem", "[cache]") {
  const std::string bytes = encode_entry(sample_entry());
  CHECK(problem_of(bytes + '\0') == EntryProblem::kTruncated);
  CHECK(problem_of(bytes + bytes) == EntryProblem::kTruncated);
}

TEST_CASE("EveryFlippedBitIsAProblem", "[cache]") {
  const std::string bytes = encode_entry(sample_entry());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      INFO("byte " << i << " bit " << bit);
      REQUIRE(problem_of(flipped) != EntryProblem::kNone);
    }
  }
}

TEST_CASE("AProblemLeavesTheResultAlone", "[cache]") {
  Entry entry = sample_entry();
  std::string bytes = encode_entry(Entry());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  REQUIRE(decode_entry(bytes, &entry) == EntryProblem::kChecksum);
  CHECK(entry == sample_entry());
}

TEST_CASE("WrongMagicIsForeign", "[cache]") {
  std::string bytes = encode_entry(sample_entry());
  bytes[0] = 'c';
  CHECK(problem_of(bytes) == EntryProblem::kForeign);
  CHECK(problem_of("no") == EntryProblem::kForeign);
  CHECK(problem_of(std::string(1000, '\0')) == EntryProblem::kForeign);
}

TEST_CASE("NewerFormatIsNewerWhateverFollows", "[cache]") {
  const std::string bytes = with_format(encode_entry(sample_entry()), kEntryFormat + 1);
  CHECK(problem_of(bytes) == EntryProblem::kNewer);
  CHECK(problem_of(bytes.substr(0, 12)) == EntryProblem::kNewer);
  CHECK(problem_of(bytes + "more") == EntryProblem::kNewer);
}

TEST_CASE("FormatZeroNeverExisted", "[cache]") {
  CHECK(problem_of(with_format(encode_entry(sample_entry()), 0)) == EntryProblem::kForeign);
}

TEST_CASE("HugeLengthsDoNotOverflow", "[cache]") {
  const std::string bytes = encode_entry(sample_entry());
  for (std::size_t from = 12; from < 24; from += 4) {
    std::string huge = bytes;
    huge.replace(from, 24 - from, 24 - from, '\xff');
    CHECK(problem_of(huge) == EntryProblem::kTruncated);
  }
}

// An entry whose identity is any text, with the right checksum.
std::string with_identity_text(const std::string& text) {
  Entry rest = sample_entry();
  std::string bytes = encode_entry(rest).substr(0, 24) + text + rest.metadata + rest.cubin;
  for (std::size_t i = 0; i < 4; ++i) bytes[12 + i] = static_cast<char>(text.size() >> (8 * i));
  const std::string digest = digest_of(bytes);
  for (std::size_t i = 0; i < digest.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digest.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

TEST_CASE("AnIdentityThatWeDidNotPrintIsRefused", "[cache]") {
  const std::string text = to_text(sample_identity());
  REQUIRE(problem_of(with_identity_text(text)) == EntryProblem::kNone);
  std::string other_spelling = text;
  other_spelling.replace(other_spelling.find(" 9:"), 3, " 09:");
  for (const std::string& bad : {std::string(), std::string("key=value"), text + "\n",
                                 text.substr(0, text.size() - 1), other_spelling}) {
    CHECK(problem_of(with_identity_text(bad)) == EntryProblem::kIdentity);
  }
}

TEST_CASE("TheIdentityIsInTheFront", "[cache]") {
  const std::string bytes = encode_entry(sample_entry());
  const std::size_t end = identity_end(bytes.substr(0, 24));
  CHECK(end == 24 + to_text(sample_identity()).size());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    INFO("first " << size << " bytes");
    REQUIRE(identity_end(bytes.substr(0, size)) == (size < 24 ? 0 : end));
    const std::optional<Identity> identity = decode_identity(bytes.substr(0, size));
    REQUIRE(identity.has_value() == (size >= end));
    if (identity) REQUIRE(*identity == sample_identity());
  }
  CHECK(identity_end(with_format(bytes, kEntryFormat + 1)) == 0);
  CHECK(identity_end("#!/bin/sh" + std::string(100, ' ')) == 0);
  CHECK_FALSE(decode_identity(bytes.substr(0, 12) + std::string(4, '\xff') + bytes.substr(16)));
}

TEST_CASE("EntryBytesAreThoseOfTheGolden", "[cache]") {
  const std::string golden = test::read_bytes(golden_path());
  REQUIRE_FALSE(golden.empty());
  // Bytes change: kEntryFormat changes, and the old golden stays as a test of what is refused.
  CHECK(encode_entry(sample_entry()) == golden);
  Entry decoded;
  REQUIRE(decode_entry(golden, &decoded) == EntryProblem::kNone);
  CHECK(decoded == sample_entry());
}

// Not run by default: `cache_tests "[.golden]"` writes the file for a new format.
TEST_CASE("WriteGoldenEntry", "[.golden]") {
  test::write_bytes(golden_path(), encode_entry(sample_entry()));
}

}  // namespace
}  // namespace cubinery
