#include "runtime/jit/kernel_info.h"

#include <string>

#include "tests/catch.h"

namespace cubinery {
namespace {

// What NVRTC 13.0 prints with -Xptxas=-v.
const std::string kLog =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     160 bytes stack frame, 28 bytes spill stores, 32 bytes spill loads\n"
    "ptxas info    : Used 24 registers, used 1 barriers, 160 bytes cumulative stack size, 256 "
    "bytes "
    "smem\n"
    "ptxas info    : Compile time = 47.338 ms\n";

KernelInfo sample() {
  return {.kernel = {},
          .canonical = {},
          .arch = {},
          .nvrtc = {},
          .registers = 255,
          .static_shared_bytes = 256,
          .spill_store_bytes = 28,
          .spill_load_bytes = 32,
          .compile_ms = 123.456,
          .log = "k.cu(2): warning: \"unused\"\n\ttab\\"};
}

bool same(const KernelInfo& a, const KernelInfo& b) {
  return a.registers == b.registers && a.static_shared_bytes == b.static_shared_bytes &&
         a.spill_store_bytes == b.spill_store_bytes && a.spill_load_bytes == b.spill_load_bytes &&
         a.compile_ms == b.compile_ms && a.log == b.log;
}

TEST_CASE("ResourcesAreReadFromTheLog", "[cpu]") {
  KernelInfo info{.log = "of another compilation"};
  REQUIRE(read_resources(kLog, &info));
  CHECK(info.registers == 24);
  CHECK(info.static_shared_bytes == 256);
  CHECK(info.spill_store_bytes == 28);
  CHECK(info.spill_load_bytes == 32);
  CHECK(info.log.empty());
}

TEST_CASE("AKernelWithoutSharedMemoryHasNone", "[cpu]") {
  KernelInfo info;
  REQUIRE(read_resources("ptxas info    : Used 40 registers, used 0 barriers\n", &info));
  CHECK(info.registers == 40);
  CHECK(info.static_shared_bytes == 0);
  CHECK(info.spill_store_bytes == 0);
}

TEST_CASE("SpillsOfCalledFunctionsCount", "[cpu]") {
  KernelInfo info;
  REQUIRE(read_resources(
      kLog + "ptxas info    : Function properties for _Z1fPf\n"
             "ptxas         .     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n",
      &info));
  CHECK(info.spill_store_bytes == 32);
  CHECK(info.spill_load_bytes == 40);
  CHECK(info.log.empty());
}

TEST_CASE("WarningsStayInTheLog", "[cpu]") {
  const std::string warning =
      "k/k.cu(2): warning #177-D: variable \"unused\" was declared but never referenced\n"
      "  int unused;\n"
      "      ^\n";
  const std::string advice = "ptxas warning : adjusting per thread register count of 16 to 24\n";
  KernelInfo info;
  REQUIRE(read_resources(warning + "\n" + advice + kLog, &info));
  CHECK(info.log == warning + advice);
  CHECK(info.registers == 24);
}

TEST_CASE("ALogWithoutAKernelHasNoResources", "[cpu]") {
  KernelInfo info;
  CHECK_FALSE(read_resources("", &info));
  CHECK_FALSE(read_resources("ptxas info    : 0 bytes gmem\n", &info));
  CHECK(info.registers == 0);
  // No newline at the end, no number where one belongs.
  CHECK(read_resources("ptxas info    : Used registers", &info));
  CHECK(info.registers == 0);
}

// Persistent: metadata stands in cache entries.
TEST_CASE("MetadataIsThisJson", "[cpu]") {
  CHECK(metadata_json(KernelInfo{.registers = 40, .compile_ms = 1.5, .log = {}}) ==
        R"({"compile_ms":1.5,"log":"","registers":40,"spill_load_bytes":0,"spill_store_bytes":0,)"
        R"("static_shared_bytes":0})");
  const std::string of_text = metadata_json(KernelInfo{.symbol = "f"}, "1 0 d\n+ 0 \"a\".h\n");
  CHECK(of_text.ends_with(R"(,"symbol":"f","includes":"1 0 d\n+ 0 \"a\".h\n"})"));
  CHECK(questions_in(of_text) == "1 0 d\n+ 0 \"a\".h\n");
  for (const std::string none : {"", "{", "[]", "{}", R"({"includes":1})"}) {
    CHECK(questions_in(none).empty());
  }
}

TEST_CASE("MetadataSurvivesARoundTrip", "[cpu]") {
  KernelInfo info{.kernel = "k", .log = {}};
  REQUIRE(read_metadata(metadata_json(sample()), &info));
  CHECK(same(info, sample()));
  CHECK(info.kernel == "k");
}

TEST_CASE("ALogThatIsNoUtf8IsWrittenAllTheSame", "[cpu]") {
  KernelInfo info = sample();
  info.log = "bad \xff byte";
  KernelInfo read;
  REQUIRE(read_metadata(metadata_json(info), &read));
  CHECK(read.log == "bad \xEF\xBF\xBD byte");
}

TEST_CASE("DamagedMetadataIsRefused", "[cpu]") {
  const std::string json = metadata_json(sample());
  KernelInfo info;
  for (std::size_t length = 0; length < json.size(); ++length) {
    CHECK_FALSE(read_metadata(json.substr(0, length), &info));
  }
  for (const char* text : {"[]", "null", "{}", "4", "\"registers\""}) {
    CHECK_FALSE(read_metadata(text, &info));
  }
  for (const char* name : {"registers", "static_shared_bytes", "spill_store_bytes",
                           "spill_load_bytes", "compile_ms", "log"}) {
    std::string renamed = json;
    renamed.replace(renamed.find(name), 1, "x");
    INFO(renamed);
    CHECK_FALSE(read_metadata(renamed, &info));
    std::string retyped = json;
    const std::size_t value = retyped.find(name) + std::string(name).size() + 2;
    retyped.replace(value, retyped.find_first_of(",}", value) - value, "[]");
    INFO(retyped);
    CHECK_FALSE(read_metadata(retyped, &info));
  }
}

// A checksum says that the bytes are those that somebody wrote, not that they make sense.
TEST_CASE("MetadataWithAbsurdNumbersIsRefused", "[cpu]") {
  const std::string json = metadata_json(sample());
  const auto reads = [&](const std::string& name, const std::string& value) {
    std::string changed = json;
    const std::size_t at = changed.find("\"" + name + "\":") + name.size() + 3;
    changed.replace(at, changed.find_first_of(",}", at) - at, value);
    INFO(changed);
    KernelInfo info;
    return read_metadata(changed, &info);
  };
  for (const char* name :
       {"registers", "static_shared_bytes", "spill_store_bytes", "spill_load_bytes"}) {
    CHECK(reads(name, "0"));
    CHECK(reads(name, "4096"));
    for (const char* absurd : {"-1", "1.5", "2147483647", "2147483648", "9223372036854775808",
                               "18446744073709551616", "1e3"}) {
      CHECK_FALSE(reads(name, absurd));
    }
  }
  CHECK_FALSE(reads("registers", "4097"));
  CHECK(reads("spill_load_bytes", "1073741824"));
  CHECK(reads("compile_ms", "0"));
  CHECK(reads("compile_ms", "604800000"));
  for (const char* absurd : {"-0.001", "1e300", "1e999"}) CHECK_FALSE(reads("compile_ms", absurd));
  KernelInfo info;
  CHECK_FALSE(read_metadata(
      json.substr(0, json.size() - 1) + ",\"x\":" + std::string(1'000'000, '['), &info));
}

TEST_CASE("OneOfSeveralKernelsIsReadFromTheLog", "[cpu]") {
  std::string other = kLog;
  other.replace(other.find("'k'"), 3, "'kk'");
  const std::string warning = "k.cu(2): warning #177-D: unused\n";
  const std::string log = warning + other + kLog + "ptxas warning : of both\n" + other;
  CHECK(reports_kernel(log, "k"));
  CHECK(reports_kernel(log, "kk"));
  CHECK_FALSE(reports_kernel(log, "kkk"));
  KernelInfo info;
  REQUIRE(read_resources(log_of_kernel(log, "k"), &info));
  CHECK(info.spill_store_bytes == 28);
  CHECK(info.log == warning + "ptxas warning : of both\n");
}

TEST_CASE("ALogOfNamesAloneSaysWhy", "[cpu]") {
  const std::string of_name =
      "__nv_name_map(2): error: identifier \"k\" is undefined\n  #pragma k\n";
  CHECK(unknown_name(of_name + "__nv_name_map(2): error: again\n2 errors detected\n") ==
        "identifier \"k\" is undefined");
  CHECK(unknown_name(of_name + "k.cu(1): error: expected a \";\"\n").empty());
  CHECK(unknown_name("At end of source: error: expected\n" + of_name).empty());
  CHECK(unknown_name("").empty());
}

TEST_CASE("ASymbolIsInTheMetadataOfATextOnly", "[cpu]") {
  KernelInfo info = sample();
  CHECK(metadata_json(info).find("symbol") == std::string::npos);
  info.symbol = "_ZN2ns5scaleIfLi4EEEvPT_i";
  const std::string json = metadata_json(info);
  KernelInfo read;
  REQUIRE(read_metadata(json, &read));
  CHECK(read.symbol == info.symbol);
  REQUIRE(read_metadata(metadata_json(sample()), &read));
  CHECK(read.symbol.empty());
  for (const std::string symbol : {"a b", "a\n", "\x1b[2J", "a/b"}) {
    info.symbol = symbol;
    CHECK_FALSE(read_metadata(metadata_json(info), &read));
  }
}

}  // namespace
}  // namespace cubinery
