#include <fstream>

#include "tests/cli/run_cli.h"

namespace cubinery {
namespace {

void flip_byte(const std::string& path, std::size_t from_end) {
  std::string bytes = read_file(path).value();
  bytes[bytes.size() - from_end] = static_cast<char>(bytes[bytes.size() - from_end] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_CASE("an empty cache is listed, verified and collected", "[cpu]") {
  const Cli cli;
  CHECK(contains(cli.run("cache ls").out, "0 entries"));
  CHECK(json::parse(cli.run("cache ls --json -").out) == json::array());
  CHECK(cli.run("cache verify").exit_code == 0);
  CHECK(cli.run("cache gc").exit_code == 0);
}

TEST_CASE("a damaged entry is found, healed and removed", "[nvrtc]") {
  const Cli cli;
  const std::string arguments = "--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80";
  const json made = cli.prewarm(arguments);
  const std::string victim = made["entries"][0]["path"];
  CHECK(cli.run("cache verify").exit_code == 0);

  flip_byte(victim, 100);
  const Output bad = cli.run("cache verify");
  CHECK(bad.exit_code == 1);
  CHECK(contains(bad.out, "bad: " + victim));
  CHECK(contains(cli.run("cache ls").out, "1 cannot be used"));
  const Output shown = cli.run("cache show " + victim);
  CHECK(shown.exit_code == 0);
  CHECK(contains(shown.out, "cannot be used"));

  const json healed = cli.prewarm(arguments + " --verify");
  CHECK(healed["compiled"] == 1);
  CHECK(healed["hits"] == made["requested"].get<int>() - 1);
  CHECK(cli.run("cache verify").exit_code == 0);

  flip_byte(victim, 100);
  const Output removed = cli.run("cache verify --remove");
  CHECK(removed.exit_code == 1);
  CHECK(contains(removed.out, "(removed)"));
  CHECK(!fs::exists(victim));
  CHECK(cli.run("cache verify").exit_code == 0);
}

TEST_CASE("verify removes nothing from a layer below", "[nvrtc]") {
  const Cli below;
  const Cli above;
  const json made = below.prewarm("--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80");
  const std::string victim = made["entries"][0]["path"];
  flip_byte(victim, 100);
  const Output output = above.run("cache verify --remove --cache-layers " + below.cache());
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, "kept: in a read-only layer"));
  CHECK(fs::exists(victim));
}

TEST_CASE("verify keeps entries that are only distrusted", "[nvrtc]") {
  const Cli cli;
  const json made = cli.prewarm("--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80");
  fs::permissions(cli.cache(), fs::perms::all);
  const Output output = cli.run("cache verify --remove");
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, "kept: not damaged"));
  CHECK(cli.entries().size() == made["requested"]);
  CHECK(cli.run("cache verify --trust-shared-dirs").exit_code == 0);
  CHECK(cli.run("doctor").exit_code == 1);
}

TEST_CASE("entries are listed, shown and collected", "[nvrtc]") {
  const Cli cli;
  const json made = cli.prewarm("--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80");
  const std::string path = made["entries"][0]["path"];
  const Output table = cli.run("cache ls");
  CHECK(contains(table.out, "gdn_decode  sm_80"));
  CHECK(contains(table.out, path));

  const json list = json::parse(cli.run("cache ls --json -").out);
  REQUIRE(list.size() == made["requested"]);
  const std::string digest = list[0]["digest"];
  CHECK(list[0]["kernel"] == "gdn_decode");
  CHECK(list[0]["arch"] == "sm_80");
  for (const std::string& name :
       {digest, digest.substr(0, 8), list[0]["path"].get<std::string>()}) {
    const Output shown = cli.run("cache show " + name);
    CHECK(shown.exit_code == 0);
    CHECK(contains(shown.out, "cubinery identity 1"));
    CHECK(contains(shown.out, "\"registers\": "));
    CHECK(contains(shown.out, "check      good"));
  }
  const Output collected = cli.run("cache gc --limit 0");
  CHECK(collected.exit_code == 0);
  CHECK(contains(collected.out, std::to_string(list.size()) + " entries"));
  CHECK(cli.entries().empty());
}

}  // namespace
}  // namespace cubinery
