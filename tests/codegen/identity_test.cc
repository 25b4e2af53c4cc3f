#include "codegen/identity.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace cubinery {
namespace {

Identity sample() {
  return {.kernel = "row_scale",
          .key = "row_scale;dtype=f16;threads=128",
          .template_digest = "00112233445566778899aabbccddeeff",
          .headers_digest = "ffeeddccbbaa99887766554433221100",
          .options = "-std=c++20 -default-device",
          .arch = "sm_90a",
          .nvrtc = "13.0.88"};
}

const std::vector<std::string Identity::*> kMembers = {
    &Identity::kernel,         &Identity::key,     &Identity::template_digest,
    &Identity::headers_digest, &Identity::options, &Identity::arch,
    &Identity::nvrtc};

// Bytes of this file change: kIdentitySchema must change with them, and every cache is refilled.
TEST_CASE("TheTextIsThatOfTheGoldenFile", "[cpu]") {
  std::ifstream file(CUBINERY_TEST_DIR "/golden/identity_v1.txt");
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  CHECK(to_text(sample()) == golden);
  CHECK(parse_identity(golden) == sample());
  CHECK(request_digest(sample()) == "2e9f39bbe6b1b46227eee39fda7066db");
}

TEST_CASE("EmptyFieldsSurvive", "[cpu]") {
  CHECK(parse_identity(to_text(Identity{})) == Identity{});
  Identity identity = sample();
  identity.nvrtc.clear();
  CHECK(parse_identity(to_text(identity)) == identity);
}

// Values that look like the lines that follow them.
TEST_CASE("NoValueImitatesAnotherField", "[cpu]") {
  const std::vector<std::string> attacks = {
      "",  "\n", "sm_90a\nnvrtc 7:13.0.88", "sm_90a\nnvrtc 7:13.0.88\n", "7:13.0.88\n", "0:\n",
      ":", "1",  "cubinery identity 1\n",   std::string("\0x\0", 3),     "\xff\xfe",    "a b"};
  std::set<std::string> texts;
  std::size_t count = 0;
  for (const auto member : kMembers) {
    for (const auto other : kMembers) {
      if (member == other) continue;
      for (const std::string& attack : attacks) {
        for (const std::string& second : {std::string("x"), attacks[2]}) {
          Identity identity = sample();
          identity.*member = attack;
          identity.*other = second;
          const std::string text = to_text(identity);
          // Nobody's kernel, key or option has control characters.
          const auto is_control = [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; };
          const std::string both = attack + second;
          const bool is_steering = std::any_of(both.begin(), both.end(), is_control);
          REQUIRE(parse_identity(text) == (is_steering ? std::nullopt : std::optional(identity)));
          texts.insert(text);
          ++count;
        }
      }
    }
  }
  // Of a pair with one attack in both places, either order is made: those texts are equal.
  const std::size_t pairs = kMembers.size() * (kMembers.size() - 1);
  CHECK(count == pairs * attacks.size() * 2);
  CHECK(texts.size() == count - pairs / 2);
}

TEST_CASE("ATruncatedTextIsNoIdentity", "[cpu]") {
  const std::string text = to_text(sample());
  for (std::size_t length = 0; length < text.size(); ++length) {
    CHECK_FALSE(parse_identity(std::string_view(text).substr(0, length)));
  }
}

TEST_CASE("AnAppendedTextIsNoIdentity", "[cpu]") {
  const std::string text = to_text(sample());
  for (const std::string tail : {"\n", " ", "x", "nvrtc 7:13.0.88\n"}) {
    CHECK_FALSE(parse_identity(text + tail));
  }
  CHECK_FALSE(parse_identity(text + std::string(1, '\0')));
  CHECK_FALSE(parse_identity(text + text));
}

TEST_CASE("AChangedByteIsAnotherIdentityOrNone", "[cpu]") {
  const std::string text = to_text(sample());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int change = 1; change < 256; ++change) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ change);
      const std::optional<Identity> parsed = parse_identity(changed);
      if (parsed && (*parsed == sample() || to_text(*parsed) != changed)) FAIL_CHECK(changed);
    }
  }
}

TEST_CASE("AnIdentityHasOneSpelling", "[cpu]") {
  const std::string text = to_text(sample());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    REQUIRE(changed.find(from) != std::string::npos);
    return changed.replace(changed.find(from), from.size(), to);
  };
  CHECK_FALSE(parse_identity(with("arch 6:", "arch 06:")));
  CHECK_FALSE(parse_identity(with("arch 6:", "arch +6:")));
  CHECK_FALSE(parse_identity(with("arch 6:", "arch -6:")));
  CHECK_FALSE(parse_identity(with("arch 6:", "arch  6:")));
  CHECK_FALSE(parse_identity(with("arch 6:", "arch 0x6:")));
  CHECK_FALSE(parse_identity(with("arch 6:", "arch 6 :")));
  CHECK_FALSE(parse_identity(with("arch 6:", "arch :")));
  CHECK_FALSE(parse_identity(with("arch 6:", "arch 18446744073709551615:")));
  CHECK_FALSE(parse_identity(with("arch 6:", "arch 18446744073709551622:")));  // 2^64 + 6
  CHECK_FALSE(parse_identity(with("identity 1", "identity 2")));
  CHECK_FALSE(parse_identity(with("identity 1", "identity 01")));
  CHECK_FALSE(
      parse_identity(with("arch 6:sm_90a\nnvrtc 7:13.0.88\n", "nvrtc 7:13.0.88\narch 6:sm_90a\n")));
}

TEST_CASE("TheRequestLeavesOutTheCompilerOnly", "[cpu]") {
  const std::string digest = request_digest(sample());
  for (const auto member : kMembers) {
    for (const std::string value : {"", "x", "13.0.89"}) {
      Identity identity = sample();
      identity.*member = value;
      CHECK((request_digest(identity) == digest) == (member == &Identity::nvrtc));
    }
  }
}

// As other implementations publish them.
TEST_CASE("DigestsAreXxh3OfTheBytes", "[cpu]") {
  CHECK(digest_of("") == "99aa06d3014798d86001c324468d497f");
  CHECK(digest_of("Hello, World!") == "531df2844447dd5077db03842cd75395");
  CHECK(digest_of("abc") == "06b05ab6733a618578af5f94892f3950");
  CHECK(digest_of(std::string_view("\0", 1)) != digest_of(""));
}

TEST_CASE("DifferencesAreNamedFieldByField", "[cpu]") {
  using Lines = std::vector<std::string>;
  CHECK(differences(sample(), sample()).empty());

  Identity theirs = sample();
  theirs.nvrtc = "12.9.86";
  theirs.arch = "sm_80";
  CHECK(differences(theirs, sample()) ==
        Lines{"arch: sm_80 -> sm_90a", "nvrtc: 12.9.86 -> 13.0.88"});

  theirs = sample();
  theirs.key = "row_scale;dtype=bf16;threads=128";
  CHECK(differences(theirs, sample()) == Lines{"key.dtype: bf16 -> f16"});
  theirs.key = "row_scale;threads=64";
  CHECK(differences(theirs, sample()) ==
        Lines{"key.dtype: (none) -> f16", "key.threads: 64 -> 128"});
  theirs.key = "row_scale;dtype=f16;vec=4;threads=128";
  CHECK(differences(theirs, sample()) == Lines{"key.vec: 4 -> (none)"});

  theirs = sample();
  theirs.options.clear();
  CHECK(differences(theirs, sample()) == Lines{"options:  -> -std=c++20 -default-device"});
}

TEST_CASE("DifferencesReadAsText", "[cpu]") {
  Identity theirs = sample();
  theirs.key = "row_scale;dtype=f32;threads=64";
  theirs.arch = "sm_80";
  CHECK(difference_text(differences(theirs, sample())) ==
        "differs in dtype: f32 -> f16, threads: 64 -> 128, arch: sm_80 -> sm_90a");
  theirs.template_digest = theirs.headers_digest = std::string(32, '0');
  theirs.options = "-std=c++17";
  CHECK(difference_text(differences(theirs, sample()), /*plural=*/true) ==
        "differ in dtype: f32 -> f16, threads: 64 -> 128, arch: sm_80 -> sm_90a and were made by "
        "another version of cubinery or another template");
  theirs = sample();
  theirs.options = "-std=c++17";
  CHECK(difference_text(differences(theirs, sample())) ==
        "was made by another version of cubinery or another template");
}

TEST_CASE("DifferentIdentitiesHaveADifference", "[cpu]") {
  for (const auto member : kMembers) {
    Identity theirs = sample();
    theirs.*member += "x";
    CHECK(differences(theirs, sample()).size() == 1);
    CHECK(differences(sample(), theirs).size() == 1);
  }
  for (const char* key : {"row_scale;threads=128;dtype=f16", "row_scale;dtype=f16;threads=128;",
                          "row_scale;dtype=f16;dtype=f16;threads=128"}) {
    Identity theirs = sample();
    theirs.key = key;
    CHECK_FALSE(differences(theirs, sample()).empty());
  }
}

}  // namespace
}  // namespace cubinery
