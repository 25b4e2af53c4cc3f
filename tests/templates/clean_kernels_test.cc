// The record of kernels that need not be compiled again.
#include "tests/templates/clean_kernels.h"

#include "gdn_decode/fields.h"
#include "tests/templates/compilations.h"

namespace cubinery::clean_kernels_test {
namespace {

using test::CleanKernels;
using test::Compilation;
using test::Compilations;
using test::digest_of_compilation;
using test::Sweep;
using test::sweep_of;

const std::string kNvrtc = "13.0.88";
const std::string kHead = "cubinery clean kernels 1\nnvrtc 13.0.88\n";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

Compilation decode(int value_dim, const std::string& arch = "sm_80") {
  return {arch, spec_of(GdnDecodeKey{.value_dim = value_dim}).value()};
}

CleanKernels record(const std::vector<std::string>& digests) {
  std::string text = kHead;
  for (const std::string& digest : std::set<std::string>(digests.begin(), digests.end())) {
    text += digest + "\n";
  }
  return CleanKernels::parse(text).value();
}

TEST_CASE("ARecordOfCleanKernelsKnowsThemForItsCompiler", "[cpu]") {
  const CleanKernels clean = record({"00a1c5e09d42", "ffffffffffff"});
  CHECK(clean.has("00a1c5e09d42", kNvrtc));
  CHECK(clean.has("ffffffffffff", kNvrtc));
  CHECK_FALSE(clean.has("00a1c5e09d43", kNvrtc));
  CHECK_FALSE(clean.has("00a1c5e09d42", "13.0.89"));
  CHECK_FALSE(clean.has("00a1c5e09d42", ""));
  CHECK_FALSE(CleanKernels().has("00a1c5e09d42", ""));
}

TEST_CASE("ADamagedRecordOfCleanKernelsIsRefused", "[cpu]") {
  struct Damage {
    std::string text;
    std::string says;
  };
  const std::vector<Damage> damages = {
      {"", "ends before"},
      {"cubinery clean kernels 1\n", "ends before"},
      {"cubinery clean kernels 2\nnvrtc 13.0.88\n", "line 1: \"cubinery clean kernels 2\""},
      {"cubinery clean kernels 1\n00a1c5e09d42\n", "line 2: \"00a1c5e09d42\""},
      {"cubinery clean kernels 1\nnvrtc \n", "line 2: \"nvrtc \""},
      {kHead + "00a1c5e09d42\n00a1c5e09d4\n", "line 4: \"00a1c5e09d4\""},
      {kHead + "00a1c5e09d421\n", "line 3: "},
      {kHead + "00A1c5e09d42\n", "line 3: "},
      {kHead + "00a1c5e09d42", "line 3: "},  // cut off
      {kHead + "00a1c5e09d42\n\n", "line 4: \"\""},
      {kHead + "00a1c5e09d42\n00a1c5e09d42\n", "line 4: "},
      {kHead + "00a1c5e09d42\n000000000000\n", "line 4: "},
      {kHead + "<<<<<<< HEAD\n00a1c5e09d42\n", "line 3: \"<<<<<<< HEAD\""},
  };
  for (const Damage& damage : damages) {
    INFO(damage.text);
    const Result<CleanKernels> clean = CleanKernels::parse(damage.text);
    REQUIRE_FALSE(clean);
    CHECK(clean.error().code() == Code::kInvalidArgument);
    CHECK(contains(clean.error().message(), damage.says));
  }
}

TEST_CASE("WhatTheRecordDoesNotKnowIsCompiled", "[cpu]") {
  Compilations all = {decode(128), decode(64), decode(128, "sm_90a"), decode(128)};
  std::vector<std::string> digests;
  for (const Compilation& one : all) digests.push_back(digest_of_compilation(one, kNvrtc));
  CHECK(digests[0] == digests[3]);
  CHECK(sweep_of(all, CleanKernels(), kNvrtc).compiled.size() == 3);

  const Sweep known = sweep_of(all, record(digests), kNvrtc);
  CHECK(known.known + known.sampled == 3);
  CHECK(known.compiled.size() == known.sampled);

  // Another one of each part of what is compiled.
  for (const auto& change : std::vector<std::function<void(Compilation*)>>{
           [](Compilation* one) { one->arch = "sm_86"; },
           [](Compilation* one) { one->spec.canonical += ";more=1"; },
           [](Compilation* one) { one->spec.initializer += " "; },
           [](Compilation* one) { ++one->spec.param_bytes; },
       }) {
    Compilation other = all[0];
    change(&other);
    const Sweep sweep = sweep_of({other}, record(digests), kNvrtc);
    CHECK(sweep.known == 0);
    CHECK(sweep.sampled == 0);
    CHECK(sweep.compiled.size() == 1);
  }
  CHECK(sweep_of(all, record(digests), "13.0.89").compiled.size() == 3);
  CHECK(digest_of_compilation(all[0], kNvrtc) != digest_of_compilation(all[0], "13.0.89"));
}

// Comments are no code; what the kernel does not include is none of its own.
TEST_CASE("AKernelWhoseCodeChangesIsAnotherOne", "[cpu]") {
  const Compilation one = decode(128);
  const std::string before = digest_of_compilation(one, kNvrtc);
  const auto digest_after = [&](const std::string& file, const std::string& more) {
    TemplateFiles files = embedded_templates();
    REQUIRE(files.contains(file));
    files.find(file)->second += more;
    return digest_of_compilation(one, kNvrtc, code_digest(files, one.spec.kernel));
  };
  for (const char* file : {"gdn_decode/gdn_decode.cu", "gdn_decode/key.h", "cubinery/dtype.h"}) {
    CHECK(digest_after(file, "int more;\n") != before);
    CHECK(digest_after(file, "// more\n") == before);
  }
  CHECK(digest_after("gdn_commit/gdn_commit.cu", "int more;\n") == before);
}

TEST_CASE("OneKnownKernelIn16IsCompiledAllTheSame", "[cpu]") {
  Compilations all;
  std::vector<std::string> digests;
  for (int n = 0; n < 512; ++n) {
    all.push_back(decode(128));
    all.back().spec.canonical += std::to_string(n);
    digests.push_back(digest_of_compilation(all.back(), kNvrtc));
  }
  const Sweep sweep = sweep_of(all, record(digests), kNvrtc);
  CHECK((sweep.sampled > 16 && sweep.sampled < 64));
  CHECK(sweep.compiled.size() == sweep.sampled);
  CHECK(sweep.known == all.size() - sweep.sampled);
  CHECK(sweep_of(all, record(digests), kNvrtc).digests == sweep.digests);
}

// The compiler's own word, though the record knows the kernel that it was.
TEST_CASE("KernelsThatAreCompiledAreChecked", "[nvrtc]") {
  Compilation wrong = decode(128);
  wrong.spec.initializer = "no key";
  wrong.spec.canonical += ";wrong=0";
  const std::string nvrtc = test::compiler(wrong.arch).nvrtc_version().value();
  const CleanKernels neighbour = record({digest_of_compilation(decode(128), nvrtc)});
  const Sweep unknown = sweep_of({wrong}, neighbour, nvrtc);
  REQUIRE(unknown.compiled.size() == 1);
  CHECK(contains(test::faults(unknown.compiled).at(0), "compile failed"));
}

TEST_CASE("TheRecordOfCleanKernelsIsWhole", "[cpu]") {
  const Result<std::string> text = read_file(CUBINERY_TEST_DIR "/data/clean_kernels.txt");
  REQUIRE(text);
  CHECK(CleanKernels::parse(*text));
}

}  // namespace
}  // namespace cubinery::clean_kernels_test
