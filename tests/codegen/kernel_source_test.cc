#include "cubinery/kernel_source.h"

#include <nlohmann/json.hpp>

#include "tests/catch.h"

namespace cubinery::kernel_source_test {
namespace {

const KernelSource kFull{.name = "ns::scale<float, 4>",
                         .source = "// \"a\"\n__global__ void k() {}\t\xc3\xa9\n",
                         .includes = {"/a b", "rel"},
                         .options = {"-DX=\"1\"", "-O2"},
                         .allow_spills = false,
                         .compiler = Compiler::kNvcc,
                         .share_headers = true};

std::string source_error(const std::string& json) {
  const Result<KernelSource> source = kernel_source_from_json(json);
  REQUIRE_FALSE(source);
  CHECK(source.error().code() == Code::kInvalidArgument);
  return std::string(source.error().message());
}

TEST_CASE("ATextIsReadAsItWasPrinted", "[cpu]") {
  const KernelSource read = kernel_source_from_json(to_json(kFull)).value();
  // Does not compile when KernelSource has a field that is not looked at here.
  const auto& [name, source, includes, options, allow_spills, compiler, share_headers] = read;
  CHECK(name == kFull.name);
  CHECK(source == kFull.source);
  CHECK(includes == kFull.includes);
  CHECK(options == kFull.options);
  CHECK(allow_spills == kFull.allow_spills);
  CHECK(compiler == kFull.compiler);
  CHECK(share_headers == kFull.share_headers);
  // Persistent: manifests hold it.
  CHECK(to_json(kFull) ==
        "{\"name\":\"ns::scale<float, 4>\",\"source\":\"// \\\"a\\\"\\n__global__ void k() "
        "{}\\t\xc3\xa9\\n\",\"includes\":[\"/a b\",\"rel\"],\"options\":[\"-DX=\\\"1\\\"\","
        "\"-O2\"],\"allow_spills\":false,\"compiler\":\"nvcc\",\"share_headers\":true}");
}

TEST_CASE("FieldsOfATextAtTheirDefaultAreLeftOut", "[cpu]") {
  CHECK(to_json(KernelSource{}) == "{}");
  CHECK(to_json(KernelSource{.name = "k", .source = "x"}) == R"({"name":"k","source":"x"})");
  const KernelSource read = kernel_source_from_json(R"({"source":"x"})").value();
  CHECK(read.source == "x");
  CHECK(to_json(read) == R"({"source":"x"})");
}

TEST_CASE("WhatIsNoTextIsRefusedWithWhatIs", "[cpu]") {
  CHECK(source_error("{") == "source: not JSON at column 2");
  CHECK(source_error("[]") == "source: []; accepted: an object");
  CHECK(source_error(R"({"nmae":"k"})") ==
        "source: no field \"nmae\"; accepted: name, source, includes, options, allow_spills, "
        "compiler, share_headers; did you mean name?");
  CHECK(source_error(R"({"name":7})") == "source: name = 7; accepted: a string");
  CHECK(source_error(R"({"allow_spills":0})") == "source: allow_spills = 0; accepted: true, false");
  CHECK(source_error(R"({"compiler":"gcc"})") ==
        "source: compiler = \"gcc\"; accepted: nvrtc, nvcc");
  for (const char* bad : {R"("a")", "[1]", R"({"a":"b"})"}) {
    CHECK(source_error(std::string("{\"includes\":") + bad + "}") ==
          std::string("source: includes = ") + bad + "; accepted: an array of strings");
  }
  CHECK(source_error(R"({"name":"a","name":"b"})").find("twice in one object") !=
        std::string::npos);
}

}  // namespace
}  // namespace cubinery::kernel_source_test
