// What a command writes is there as a whole, or the command fails.
#include <sys/stat.h>

#include <fstream>

#include "tests/cli/run_cli.h"

namespace cubinery {
namespace {

// Files of at most 512 bytes: what a full disk does to a file of any size.
const std::string kSmallDisk = "sh -c 'trap \"\" XFSZ; ulimit -f 1; exec \"$@\"' sh";

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
