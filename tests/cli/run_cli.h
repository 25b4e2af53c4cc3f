// The binary, run as users do.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/print.h"
#include "tests/catch.h"

namespace cubinery {

namespace fs = std::filesystem;
using nlohmann::json;

inline const std::string kModel =
    CUBINERY_TEST_DIR "/data/models/Qwen3-Next-80B-A3B-Instruct/config.json";

struct Output {
  int exit_code = -1;
  std::string out;
  std::string err;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A directory with a cache in it, and the command line that works on that cache.
class Cli {
 public:
  Cli() {
    std::string path = (fs::temp_directory_path() / "cubinery-cli-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
    dir_ = path;
  }
  ~Cli() { fs::remove_all(dir_); }
  Cli(const Cli&) = delete;
  Cli& operator=(const Cli&) = delete;

  std::string dir() const { return dir_; }
  std::string cache() const { return dir_ + "/cache"; }

  Output run(const std::string& arguments, const std::string& environment = "") const {
    const std::string errors = dir_ + "/stderr";
    // Nothing of the caller's settings but where NVRTC is.
    const std::string command =
        "env -u CUBINERY_CACHE_LAYERS -u CUBINERY_CACHE_LIMIT -u CUBINERY_OFFLINE -u "
        "CUBINERY_TRUST "
        "-u CUBINERY_TEMPLATE_DIR CUBINERY_CACHE_DIR=" +
        cache() + " " + environment + " " + CUBINERY_CLI_PATH + " " + arguments + " 2>" + errors;
    std::FILE* pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    Output output;
    std::array<char, 4096> buffer;
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      output.out.append(buffer.data(), count);
    }
    const int status = pclose(pipe);
    output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    output.err = read_file(errors).value();
    return output;
  }

  // As root bound by permissions, too.
  Output run_unprivileged(const std::string& arguments) const {
    const std::string caps = "-dac_override,-dac_read_search";
    return run(arguments,
               geteuid() == 0 ? "setpriv --bounding-set " + caps + " --inh-caps " + caps : "");
  }

  // The summary of a prewarm.
  json prewarm(const std::string& arguments, int exit_code = 0) const {
    const Output output = run("prewarm --json - " + arguments);
    INFO(output.err);
    REQUIRE(output.exit_code == exit_code);
    return json::parse(output.out);
  }

  std::vector<std::string> entries() const {
    std::vector<std::string> paths;
    if (!fs::exists(cache() + "/entries")) return paths;
    for (const auto& entry : fs::directory_iterator(cache() + "/entries")) {
      paths.push_back(entry.path());
    }
    return paths;
  }

 private:
  std::string dir_;
};

}  // namespace cubinery
