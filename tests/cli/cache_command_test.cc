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
  fs::create_directories(cli.cache());
  CHECK(contains(cli.run("cache ls").out, "0 entries"));
  CHECK(cli.run("cache ls").exit_code == 0);
  CHECK(json::parse(cli.run("cache ls --json -").out) == json::array());
  CHECK(cli.run("cache verify").exit_code == 0);
  CHECK(cli.run("cache gc").exit_code == 0);
}

// Not "0 entries" and all is well.
TEST_CASE("a directory or layer that cannot be seen is an error", "[cpu]") {
  const Cli cli;
  const std::string absent = cli.dir() + "/absent", there = cli.dir() + "/there";
  fs::create_directories(there);
  for (const std::string command :
       {"cache ls", "cache ls --json -", "cache verify", "cache show x"}) {
    INFO(command);
    const Output none = cli.run(command + " --cache-dir " + absent);
    CHECK(none.exit_code != 0);
    CHECK(contains(none.err, "cubinery: " + absent + ": no such directory or pack"));
    const Output layer = cli.run(command + " --cache-dir " + there + " --cache-layers " + absent);
    CHECK(layer.exit_code != 0);
    CHECK(contains(layer.err, "cubinery: " + absent + ": no such directory or pack"));
    // Nothing was written yet; the layer has what there is.
    const Output user = cli.run(command + " --cache-dir " + absent + " --cache-layers " + there);
    CHECK_FALSE(contains(user.err, "no such directory"));
  }
}

// A cache that another user filled, whose folders are private.
TEST_CASE("a cache that this user may not read is an error", "[cpu]") {
  const Cli cli;
  const std::string entries = cli.cache() + "/entries";
  fs::create_directories(entries);
  fs::permissions(entries, fs::perms::none);
  const Output listed = cli.run_unprivileged("cache ls");
  CHECK(listed.exit_code == 1);
  CHECK(contains(listed.err, "cannot list " + entries + ": Permission denied"));
  CHECK(cli.run_unprivileged("cache verify").exit_code == 1);
  const Output doctor = cli.run_unprivileged("doctor");
  CHECK(doctor.exit_code == 1);
  CHECK(contains(doctor.out, "cannot list " + entries));
  CHECK(contains(doctor.out, "chmod -R a+rX " + cli.cache()));
  fs::permissions(entries, fs::perms::owner_all);
}

TEST_CASE("doctor fails where nothing is compiled and nothing is there", "[cpu]") {
  const Cli cli;
  fs::create_directories(cli.cache());
  const Output output = cli.run("doctor", "CUBINERY_OFFLINE=1");
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, "FAIL  offline  no directory or layer has an entry"));
  CHECK(contains(output.out, "OK    compile  not tried: CUBINERY_OFFLINE=1"));
  CHECK(contains(output.out, "\nNot in order: offline."));
  CHECK_FALSE(contains(cli.run("doctor").out, "offline"));
}

TEST_CASE("a layer that is not there is warned of", "[cpu]") {
  const Cli cli;
  const std::string absent = cli.dir() + "/absent";
  const Output output = cli.run("explain --verbose --op gdn_decode --key-dim 64 --arch sm_80",
                                "CUBINERY_CACHE_LAYERS=" + absent);
  CHECK(contains(output.err, "cache layer " + absent + ": no such directory or pack"));
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

// A cache whose path is no UTF-8: the documents are.
TEST_CASE("what the cache commands did is JSON, too", "[nvrtc]") {
  const Cli cli;
  const std::string where = " --cache-dir '" + cli.dir() + "/caf\xe9'";
  const auto run = [&](const std::string& arguments, int exit_code = 0) {
    const Output output = cli.run(arguments + where + " --json -");
    INFO(arguments << output.err);
    CHECK(output.exit_code == exit_code);
    return json::parse(output.out);
  };
  const std::string problem = "--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80";
  const json made = run("prewarm " + problem);
  const int count = made["requested"];
  CHECK(contains(made["cache_dir"], "/caf\xef\xbf\xbd"));
  CHECK(run("explain " + problem).size() == made["requested"]);
  CHECK(run("cache ls").size() == made["requested"]);
  CHECK(run("doctor")["checks"].size() > 3);
  CHECK(run("cache verify") == json{{"checked", count},
                                    {"bad", 0},
                                    {"entries", json::array()},
                                    {"unlisted", json::array()}});

  const std::string pack = cli.dir() + "/x.pack";
  const json written = run("cache export -o " + pack);
  CHECK(written["pack"] == pack);
  CHECK(written["entries"] == count);
  CHECK(written["bytes"] > 1000);
  CHECK(written["unusable"] == 0);
  CHECK(run("cache import " + pack) ==
        json{{"pack", pack}, {"imported", 0}, {"present", count}, {"damaged", 0}, {"evicted", 0}});

  const fs::path entries = cli.dir() + "/caf\xe9/entries";
  const std::string victim = fs::directory_iterator(entries)->path();
  flip_byte(victim, 100);
  const json bad = run("cache verify --remove", 1);
  CHECK(bad["bad"] == 1);
  REQUIRE(bad["entries"].size() == 1);
  CHECK(contains(bad["entries"][0]["path"], fs::path(victim).filename()));
  CHECK(bad["entries"][0]["damaged"] == true);
  CHECK(bad["entries"][0]["removed"] == true);
  CHECK_FALSE(fs::exists(victim));
  CHECK(run("cache verify --cache-layers /nowhere", 1)["unlisted"].size() == 1);

  const json collected = run("cache gc --limit 0");
  CHECK(collected["entries_removed"] == count - 1);
  CHECK(collected["temporaries_removed"] == 0);
  CHECK(collected["bytes_before"] > 1000);
  CHECK(collected["bytes_after"] == 0);
  for (const std::string& command :
       std::vector<std::string>{"verify", "gc", "ls", "import " + pack}) {
    CHECK(cli.run("cache " + command + where + " --json /nowhere/file").exit_code == 2);
  }
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

TEST_CASE("a pack is exported, used where it lies, and imported", "[nvrtc]") {
  const Cli shop;
  const std::string arguments = "--op gdn_decode --key-dim 64 --value-dim 64";
  const json made = shop.prewarm(arguments + " --arch sm_80,sm_90a");
  const std::string pack = shop.dir() + "/model.pack";
  const Output written = shop.run("cache export --arch sm_80 -o " + pack);
  INFO(written.err);
  REQUIRE(written.exit_code == 0);
  const std::size_t half = made["requested"].get<std::size_t>() / 2;
  CHECK(contains(written.out, std::to_string(half) + " entries, "));
  CHECK(contains(written.out, " in " + pack));
  const std::string copy = shop.dir() + "/copy.pack";
  REQUIRE(shop.run("cache export --arch sm_80 --kernel gdn_decode -o " + copy).exit_code == 0);
  CHECK(read_file(copy).value() == read_file(pack).value());

  // On a machine without a compiler.
  const Cli user;
  const std::string layered = "CUBINERY_OFFLINE=1 CUBINERY_CACHE_LAYERS=" + pack;
  const Output used = user.run("prewarm --verify --json - " + arguments + " --arch sm_80", layered);
  INFO(used.err);
  REQUIRE(used.exit_code == 0);
  const json summary = json::parse(used.out);
  CHECK(summary["hits"] == half);
  const std::string path = summary["entries"][0]["path"];
  CHECK(path.rfind(pack + "/gdn_decode-", 0) == 0);
  CHECK(summary["entries"][0]["bytes"].get<std::uint64_t>() > 1000);
  CHECK(user.run("prewarm " + arguments + " --arch sm_90a", layered).exit_code == 1);
  CHECK(contains(user.run("cache ls", layered).out, path));
  CHECK(contains(user.run("cache show " + path, layered).out, "check      good"));
  CHECK(user.run("cache verify", layered).exit_code == 0);
  CHECK(contains(user.run("explain --verbose " + arguments + " --arch sm_80", layered).out, path));
  CHECK(contains(user.run("doctor", layered).out,
                 pack + ": a pack of " + std::to_string(half) + " entries, "));
  CHECK(user.entries().empty());

  const Output imported = user.run("cache import " + pack);
  CHECK(imported.exit_code == 0);
  CHECK(contains(imported.out, std::to_string(half) + " entries imported, 0 were there"));
  CHECK(user.entries().size() == half);
  CHECK(contains(user.run("cache import " + pack).out,
                 "0 entries imported, " + std::to_string(half) + " were there, 0 are damaged"));
}

TEST_CASE("a damaged pack is named", "[nvrtc]") {
  const Cli shop;
  const std::string arguments = "--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80";
  shop.prewarm(arguments);
  const std::string pack = shop.dir() + "/model.pack";
  REQUIRE(shop.run("cache export -o " + pack).exit_code == 0);
  const std::string good = read_file(pack).value();
  const Cli user;
  const std::string layered = "CUBINERY_CACHE_LAYERS=" + pack;

  flip_byte(pack, 100);  // an entry
  Output output = user.run("cache import " + pack);
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, ", 1 are damaged"));
  CHECK(contains(output.err, "passed over " + pack + "/gdn_decode-"));
  output = user.run("cache verify --remove", layered);
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, "bad: " + pack + "/gdn_decode-"));
  CHECK(contains(output.out, "(kept: in a read-only layer)"));

  std::ofstream(pack, std::ios::binary) << good.substr(0, good.size() - 1);
  output = user.run("cache verify", layered);
  CHECK(output.exit_code == 1);
  CHECK(contains(output.out, "bad: " + pack + ": truncated"));
  CHECK(contains(user.run("cache ls", layered).out, "(truncated)"));
  CHECK(contains(user.run("doctor", layered).out, pack + ": truncated"));
  output = user.run("cache import " + pack);
  CHECK(output.exit_code == 2);
  CHECK(contains(output.err, "nothing is imported from " + pack + ": truncated"));
}

TEST_CASE("a pack of nothing is not written", "[nvrtc]") {
  const Cli cli;
  const std::string pack = cli.dir() + "/model.pack";
  Output output = cli.run("cache export -o " + pack);
  CHECK(output.exit_code == 2);
  CHECK(contains(output.err, "no entry to be exported"));
  output = cli.run("cache export --arch sm_80 -o " + pack);
  CHECK(output.exit_code == 2);
  CHECK(contains(output.err, "--arch sm_80: no such entry in "));
  CHECK(contains(output.err, "accepted: nothing, the cache is empty"));
  cli.prewarm("--op gdn_decode --key-dim 64 --value-dim 64 --arch sm_80");
  output = cli.run("cache export --arch sm_80,sm_90a -o " + pack);
  CHECK(output.exit_code == 2);
  CHECK(
      contains(output.err, "--arch sm_90a: no such entry in " + cli.cache() + "; accepted: sm_80"));
  output = cli.run("cache export --kernel gdn_prefill_scan -o " + pack);
  CHECK(output.exit_code == 2);
  CHECK(contains(output.err, "accepted: gdn_decode"));
  output = cli.run("cache export -o " + kModel);
  CHECK(output.exit_code == 2);
  CHECK(contains(output.err, "is there and is not a pack"));
  CHECK(!fs::exists(pack));
}

}  // namespace
}  // namespace cubinery
