// Manifests in files: texts, folders, lines.
#include "cli/manifest.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cubinery/gdn.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::manifest_test {
namespace {

const KernelSource kScale{.name = "scale", .source = "__global__ void scale() {}"};

std::string entry_of(const KernelSource& source) { return "{\"source\":" + to_json(source) + "}"; }

std::string error_of(std::string_view text) {
  const auto requests = read_manifest("list.json", text);
  REQUIRE(!requests);
  CHECK(requests.error().code() == Code::kInvalidArgument);
  return std::string(requests.error().message());
}

TEST_CASE("a manifest holds texts", "[cpu]") {
  KernelSource full = kScale;
  full.includes = {"/abs", "rel/./inc"};
  full.options = {"-DX=1"};
  full.allow_spills = false;
  const std::string text = "[" + entry_of(kScale) + ",{\"arch\":\"sm_80\"," +
                           entry_of(full).substr(1) + ",{\"op\":\"gdn_decode\"}]";
  const auto requests = read_manifest("folder/list.json", text).value();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].origin == "folder/list.json, entry 1");
  const AskedKernel& first = *requests[0].own_kernel;
  CHECK(first.is_text());
  CHECK(first.name() == "scale");
  CHECK(first.key() == "source;name=scale;allow_spills=true");
  CHECK(first.json() == to_json(kScale));
  CHECK(requests[1].arch == "sm_80");
  full.includes = {"/abs", "folder/rel/./inc"};
  CHECK(requests[1].own_kernel->json() == to_json(full));
  CHECK_FALSE(requests[2].own_kernel);
}

TEST_CASE("a file beside the manifest has the text", "[cpu]") {
  const test::TempDir dir;
  std::ofstream(dir.path() + "/scale.cu") << kScale.source;
  const std::string manifest = dir.path() + "/list.json";
  const auto read = [&](const std::string& file) {
    return read_manifest(manifest, R"([{"source":{"name":"scale","file":")" + file + R"("}}])");
  };
  for (const std::string& file : {std::string("scale.cu"), dir.path() + "/scale.cu"}) {
    CHECK(read(file).value().at(0).own_kernel->json() == to_json(kScale));
  }
  const Status missing = read("none.cu").error().clone();
  CHECK(missing.code() == Code::kInvalidArgument);
  CHECK(missing.message().find(manifest + ", entry 1: source: cannot read " + dir.path() +
                               "/none.cu: ") != std::string_view::npos);
}

TEST_CASE("texts that cannot be name their entry and what is accepted", "[cpu]") {
  const auto of = [](const std::string& fields) { return "[{\"source\":{" + fields + "}}]"; };
  const std::string named = R"("name":"k","source":"x")";
  CHECK(error_of(of(named + R"(,"fiel":"k.cu")")) ==
        "list.json, entry 1: source: no field \"fiel\"; accepted: name, source, includes, options, "
        "allow_spills, compiler, share_headers, file; did you mean file?");
  CHECK(error_of(of(named + R"(,"file":"k.cu")")) ==
        "list.json, entry 1: source: file beside source; accepted: one of them");
  CHECK(error_of(of(R"("name":"k","file":7)")) ==
        "list.json, entry 1: source: file = 7; accepted: a string");
  CHECK(error_of(of(R"("name":"a b","source":"x")"))
            .starts_with("list.json, entry 1: source: name is \"a b\"; accepted: that of a "
                         "__global__ function"));
  CHECK(error_of(R"([{"op":"gdn_decode"},{"source":7}])") ==
        "list.json, entry 2: source: 7; accepted: an object");
  CHECK(error_of(R"([{"source":{},"spec":{}}])") ==
        "list.json, entry 1: source beside spec; accepted: arch");
  CHECK(error_of(R"([{"source":{},"op":"gdn_decode"}])") ==
        "list.json, entry 1: op beside source; accepted: arch");
}

TEST_CASE("a manifest may have an object on each line", "[cpu]") {
  const std::string decode = R"({"op":"gdn_decode","key_dim":64})";
  const std::string text = "\n" + decode + "\n" + entry_of(kScale) + "\r\n\n  \n" + decode +
                           "\n{\"op\": \"gdn_decode\", \"key_dim\": 64}\n{\"op\":\"gdn_conv\"}";
  LeftOuts left_out;
  const auto requests = read_manifest("list.json", text, &left_out).value();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].origin == "list.json, line 2");
  CHECK(std::get<gdn::DecodeProblem>(requests[0].asked.problem).key_dim == 64);
  CHECK(requests[1].own_kernel->json() == to_json(kScale));
  CHECK(requests[2].origin == "list.json, line 8");
  CHECK(left_out.empty());
}

TEST_CASE("a line that its writer did not end is left out, and said", "[cpu]") {
  const std::string whole = entry_of(kScale);
  // Wherever a writer was stopped.
  for (std::size_t size = 1; size < whole.size(); ++size) {
    LeftOuts left_out;
    const std::string cut = whole.substr(0, size);
    const auto requests =
        read_manifest("list.json", "{\"op\":\"gdn_decode\"}\n" + cut, &left_out).value();
    CHECK(requests.size() == 1);
    REQUIRE(left_out.json().size() == 1);
    CHECK(left_out.json()[0]["what"] == "line 2");
    CHECK(left_out.json()[0]["origin"] == "list.json");
    CHECK(left_out.json()[0]["why"] == "it ends before its object does");
    CHECK(left_out.exit_code(0) == 3);
    // Others have gone on behind it.
    LeftOuts before;
    const std::string both = fmt::format("{}\n{}\n", cut, whole);
    CHECK(read_manifest("list.json", both, &before).value().size() == 1);
    CHECK(before.json().at(0)["what"] == "line 1");
  }
}

TEST_CASE("lines that are no entries name themselves", "[cpu]") {
  const std::string good = "{\"op\":\"gdn_decode\"}\n";
  CHECK(error_of(good + "7\n") == "list.json, line 2: 7; accepted: an object");
  CHECK(error_of(good + "\n{]\n") == "list.json, line 3: not JSON at column 2");
  CHECK(error_of(good + good.substr(0, good.size() - 1) + good) ==
        "list.json, line 2: not JSON at column 20");
  CHECK(error_of(good + "{\"op\":\"x\"}").starts_with("list.json, line 2: op = \"x\"; accepted: "));
  CHECK(error_of("  \n") == "list.json: not JSON at line 2, column 1");
}

}  // namespace
}  // namespace cubinery::manifest_test
