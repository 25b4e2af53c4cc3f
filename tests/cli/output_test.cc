// What a command writes is there as a whole, or the command fails.
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "cache/store.h"
#include "tests/cache/sample.h"
#include "tests/cli/run_cli.h"

namespace cubinery {
namespace {

// Files of at most 512 bytes: what a full disk does to a file of any size.
const std::string kSmallDisk = "sh -c 'ulimit -f 1; exec \"$@\"' sh";

TEST_CASE("a full standard output is an error of every command", "[cpu]") {
  const Cli cli;
  const std::string problem = " --op gdn_decode --key-dim 64 --arch sm_80";
  for (const std::string& command :
       {std::string("--help"), std::string("--version"), std::string("cache --help"),
        std::string("operators"), std::string("operators --json -"),
        std::string("problems --key-dim 64"), "prewarm --dry-run" + problem,
        "prewarm --dry-run --json -" + problem, "explain" + problem, "explain --source" + problem,
        "tune --dry-run --batch 1" + problem, std::string("report --library"),
        std::string("report --library --format html"), std::string("cache ls"),
        std::string("cache ls --json -"), std::string("cache verify"), std::string("cache gc"),
        std::string("doctor --nvrtc /nowhere")}) {
    const Output output = cli.run(command + " >/dev/full");
    INFO(command << "\n" << output.err);
    CHECK(output.exit_code == 1);
    const std::string message = "cubinery: cannot write stdout: No space left on device\n";
    CHECK(output.err.find(message) == output.err.rfind(message));
    CHECK(output.err.ends_with(message));
  }
}

TEST_CASE("control characters are printed as text", "[cpu]") {
  CHECK(visible("gdn_decode\tsm_80\n") == "gdn_decode\tsm_80\n");
  CHECK(visible("\x1b[2Jred\r\x7f\x07") == "\\x1b[2Jred\\x0d\\x7f\\x07");
  CHECK(visible(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(visible("\xc2\x9b"
                "2J") ==
        "\\x9b"
        "2J");  // CSI in one character
  CHECK(visible("\x9b"
                "2J \xc3") ==
        "\\x9b"
        "2J \\xc3");
  CHECK(visible("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
  // Longer than need be, half of a surrogate pair, and behind the last character.
  CHECK(visible("\xc0\xaf") == "\\xc0\\xaf");
  CHECK(visible("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
  CHECK(visible("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(visible("\xf0\x80\x80\xaf") == "\\xf0\\x80\\x80\\xaf");
  CHECK(visible("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(visible("\xee\x80\x80\xf4\x8f\xbf\xbd") == "\xee\x80\x80\xf4\x8f\xbf\xbd");
}

// Names from entries, results and manifests.
TEST_CASE("no name steers the terminal", "[cpu]") {
  const Cli cli;
  const auto check = [&](const std::string& arguments, const std::string& shown) {
    const Output output = cli.run(arguments);
    INFO(arguments << "\n" << output.out << output.err);
    for (const std::string& text : {output.out, output.err}) {
      CHECK(std::none_of(text.begin(), text.end(),
                         [](char c) { return c == '\x1b' || c == '\x7f'; }));
    }
    CHECK(contains(output.out + output.err, shown));
  };
  Entry entry = test::sample_entry();
  entry.identity.key += ";x=\x1b[2J";
  const std::string path = Store({.dir = cli.cache()}).publish(entry).value();
  check("cache ls", "(identity)");
  check("cache ls --json -", "\"identity\"");
  check("cache verify", ": identity");
  check("cache show " + path, "cannot be used");

  const std::string tuned = cli.dir() + "/tuned";
  fs::create_directory(tuned);
  std::ifstream measured(CUBINERY_TEST_DIR "/../results/measured/h200.results.jsonl");
  std::string line;
  REQUIRE(std::getline(measured, line));
  auto result = nlohmann::ordered_json::parse(line);
  result["configuration"]["path"] = "\x1b[2J";
  result["gpu"]["name"] = "H\x7f";
  std::ofstream(tuned + "/gdn_decode.results.jsonl") << result.dump() << "\n";
  check("report --dir " + tuned, "\\x");
  check("report --format json --dir " + tuned, "\\u001b");

  const std::string manifest = cli.dir() + "/problems.json";
  std::ofstream(manifest) << R"([{"op": "gdn_decode", "\u001b[2J": 1, "arch": "sm_80"}])";
  check("prewarm --dry-run --manifest " + manifest, "\\x1b[2J");
  std::ofstream(manifest) << R"([{"op": "\u001b[2J\u007f"}])";
  check("explain --manifest " + manifest, "2J");
}

TEST_CASE("another user's link in a sticky folder is not followed", "[cpu]") {
  if (geteuid() != 0) {
    WARN("not root: cannot lay another user's link");
    return;
  }
  const Cli cli;
  const std::string folder = cli.dir() + "/shared", file = cli.dir() + "/file",
                    link = folder + "/link";
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::all | fs::perms::sticky_bit);
  std::ofstream(file) << "mine";
  fs::create_symlink(file, link);
  CHECK(cli.run("operators --json " + link).exit_code == 0);  // the user's own
  CHECK(read_file(file).value() != "mine");
  std::ofstream(file) << "mine";
  REQUIRE(lchown(link.c_str(), 12345, 12345) == 0);
  for (const char* command : {"operators --json ", "problems --key-dim 64 -o "}) {
    const Output output = cli.run(command + link);
    CHECK(output.exit_code != 0);
    CHECK(contains(output.err, "cannot write " + link + ": Permission denied"));
    CHECK(read_file(file).value() == "mine");
  }
  fs::permissions(folder, fs::perms::owner_all);
  CHECK(cli.run("operators --json " + link).exit_code == 0);
}

TEST_CASE("a file that cannot be written stays as it was", "[cpu]") {
  const Cli cli;
  const std::string folder = cli.dir() + "/out";
  fs::create_directory(folder);
  const std::string file = folder + "/file";
  for (const std::string& command :
       {"operators --json " + file, "problems --key-dim 64 -o " + file,
        "report --library --format json -o " + file,
        "prewarm --dry-run --op gdn_decode --key-dim 64 --arch sm_80 --json " + file}) {
    const Output output = cli.run(command + " >/dev/null", kSmallDisk);
    INFO(command << "\n" << output.err);
    CHECK(output.exit_code == 1);
    CHECK(contains(output.err, "cubinery: cannot write " + file + ": File too large"));
    CHECK(fs::is_empty(folder));
  }
  std::ofstream(file) << "before";
  CHECK(cli.run("operators --json " + file + " >/dev/null", kSmallDisk).exit_code == 1);
  CHECK(read_file(file).value() == "before");
  CHECK(cli.run("operators --json /dev/full").exit_code == 1);
}

TEST_CASE("a file is replaced, and what is no file is written in place", "[cpu]") {
  const Cli cli;
  const std::string file = cli.dir() + "/file";
  const std::string link = cli.dir() + "/link";
  std::ofstream(file) << "before";
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(file, link);
  CHECK(cli.run("problems --key-dim 64 -o " + link).exit_code == 0);
  CHECK(fs::is_symlink(link));
  CHECK(contains(read_file(file).value(), "\"key_dim\":64"));
  CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(cli.run("problems --key-dim 64 -o /dev/null").exit_code == 0);
  CHECK(fs::is_character_file("/dev/null"));
  CHECK(contains(cli.run("problems --key-dim 64 -o /dev/stdout").out, "\"key_dim\":64"));
}

TEST_CASE("a file is made with the umask and replaced with the mode that it had", "[cpu]") {
  const Cli cli;
  const std::string folder = cli.dir() + "/out";
  fs::create_directory(folder);
  const std::string file = folder + "/file";
  const auto mode_after = [&](const std::string& umask) {
    const std::string shell = "sh -c 'umask " + umask + "; exec \"$@\"' sh";
    CHECK(cli.run("problems --key-dim 64 -o " + file, shell).exit_code == 0);
    return static_cast<int>(fs::status(file).permissions());
  };
  CHECK(mode_after("002") == 0664);
  CHECK(mode_after("077") == 0664);
  fs::remove(file);
  CHECK(mode_after("077") == 0600);
  CHECK(std::distance(fs::directory_iterator(folder), {}) == 1);
}

TEST_CASE("an output that cannot be is refused before the work", "[cpu]") {
  const Cli cli;
  for (const std::string command :
       {"prewarm --key-dim 64 --arch sm_80", "explain --key-dim 64 --arch sm_80",
        "tune --key-dim 64 --arch sm_80 --dry-run", "doctor", "operators"}) {
    const Output output = cli.run(command + " --json /nowhere/file");
    INFO(command);
    CHECK(output.exit_code == 2);
    CHECK(output.out.empty());
    CHECK(output.err == "cubinery: cannot write /nowhere/file: No such file or directory\n");
  }
  CHECK(cli.entries().empty());
}

}  // namespace
}  // namespace cubinery
