#include "cubinery/options.h"

#include <stdlib.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "runtime/jit/options_text.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::options_test {
namespace {

// The variables that the library reads, all unset; restored at the end.
class Environment {
 public:
  Environment() {
    for (const char* name : kNames) {
      const char* value = ::getenv(name);
      before_[name] = value != nullptr ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(name);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

 private:
  static constexpr const char* kNames[] = {
      "CUBINERY_CACHE_DIR", "CUBINERY_CACHE_LAYERS", "CUBINERY_CACHE_LIMIT",
      "CUBINERY_OFFLINE",   "CUBINERY_TRUST",        "CUBINERY_NVRTC",
      "CUBINERY_DRIVER",    "CUBINERY_TEMPLATE_DIR", "CUDA_HOME",
      "CUDA_PATH",          "XDG_CACHE_HOME",        "HOME",
      "CUBINERY_RECORD"};
  std::map<std::string, std::optional<std::string>> before_;
};

Options options() {
  Result<Options> options = Options::from_env();
  REQUIRE(options);
  return std::move(*options);
}

std::string refusal() {
  const Result<Options> options = Options::from_env();
  REQUIRE_FALSE(options);
  CHECK(options.error().code() == Code::kInvalidArgument);
  return std::string(options.error().message());
}

TEST_CASE("AnEmptyEnvironmentGivesTheDefaults", "[cpu]") {
  const Environment environment;
  const Options found = options();
  const Options defaults;
  CHECK(found.device == defaults.device);
  CHECK(found.arch.empty());
  CHECK_FALSE(found.offline);
  CHECK(found.nvrtc_path.empty());
  CHECK(found.driver_path.empty());
  CHECK(found.cache_dir.empty());
  CHECK(found.cache_layers.empty());
  CHECK(found.use_disk_cache);
  CHECK(found.cache_limit_bytes == std::uint64_t{1} << 30);
  CHECK_FALSE(found.trust_shared_dirs);
  CHECK(found.template_dirs.empty());
  CHECK(found.record.empty());
  CHECK_FALSE(found.log);
}

TEST_CASE("TrustIsIdsOfUsersAndGroups", "[cpu]") {
  Environment environment;
  environment.set("CUBINERY_TRUST", "uid:65534,gid:2000");
  CHECK(options().trust.users == std::vector<std::uint32_t>{65534});
  CHECK(options().trust.groups == std::vector<std::uint32_t>{2000});
  CHECK_FALSE(options().trust.everybody);
  environment.set("CUBINERY_TRUST", "all");
  CHECK(options().trust.everybody);
  environment.set("CUBINERY_TRUST", "");
  CHECK_FALSE(options().trust.everybody);
  for (const char* value : {"0", "1", "uid:nobody", "uid:1 gid:2", "uid:1,"}) {
    environment.set("CUBINERY_TRUST", value);
    CHECK(refusal() == "CUBINERY_TRUST = \"" + std::string(value) +
                           "\"; accepted: all, or ids of users and groups between commas such as "
                           "uid:65534,gid:2000");
  }
}

TEST_CASE("TheCacheDirectoryComesFromTheMostSpecificVariable", "[cpu]") {
  Environment environment;
  environment.set("HOME", "/home/u");
  CHECK(options().cache_dir == "/home/u/.cache/cubinery");
  environment.set("XDG_CACHE_HOME", "/xdg");
  CHECK(options().cache_dir == "/xdg/cubinery");
  environment.set("CUBINERY_CACHE_DIR", "/own");
  CHECK(options().cache_dir == "/own");
  environment.set("CUBINERY_CACHE_DIR", "");
  CHECK(options().cache_dir == "/xdg/cubinery");
}

TEST_CASE("ARelativeHomeIsNone", "[cpu]") {
  Environment environment;
  environment.set("HOME", "/home/u");
  environment.set("XDG_CACHE_HOME", "cache");
  CHECK(options().cache_dir == "/home/u/.cache/cubinery");
  environment.set("XDG_CACHE_HOME", "~/cache");
  CHECK(options().cache_dir == "/home/u/.cache/cubinery");
  environment.set("HOME", "u");
  CHECK(options().cache_dir.empty());
}

TEST_CASE("NobodyButAShellExpandsATilde", "[cpu]") {
  const auto refusal = [](const Options& options) {
    return std::string(Context::create(options).error().message());
  };
  const Options none{.device = kNoDevice, .arch = "sm_80"};
  Options options = none;
  options.cache_dir = "~/cache";
  CHECK(refusal(options).starts_with("Options::cache_dir has \"~/cache\"; accepted: a path"));
  options = none;
  options.cache_layers = {"/a", "~"};
  CHECK(refusal(options).starts_with("Options::cache_layers has \"~\""));
  options = none;
  options.template_dirs = {"~/t"};
  CHECK(refusal(options).starts_with("Options::template_dirs has \"~/t\""));
  options = none;
  options.record = "~/kernels.json";
  CHECK(refusal(options).starts_with("Options::record has \"~/kernels.json\""));
  options = none;
  options.cache_dir = "/tmp/~";
  CHECK(check_directories(options).ok());
}

TEST_CASE("WordsForAShell", "[cpu]") {
  CHECK(shell_word("/var/cache/cubinery-1.0_a") == "/var/cache/cubinery-1.0_a");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("/a b;rm -rf $HOME") == "'/a b;rm -rf $HOME'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("caf\xc3\xa9") == "'caf\xc3\xa9'");
  // What cannot be seen, and what would be an option.
  CHECK(shell_word("a\n\x1b'\\") == "$'a\\012\\033\\'\\\\'");
  CHECK(shell_word("caf\xe9") == "$'caf\\351'");
  CHECK(shell_path("-rf") == "./-rf");
  CHECK(shell_path("- x") == "'./- x'");
  CHECK(shell_path("/-rf") == "/-rf");
  CHECK(shell_option("--cache-dir", "-rf") == "--cache-dir=-rf");
  CHECK(shell_option("--cache-dir", "- x") == "'--cache-dir=- x'");
  CHECK(shell_option("--cache-dir", "a b") == "--cache-dir 'a b'");
}

TEST_CASE("ListsAreSeparatedByColons", "[cpu]") {
  Environment environment;
  environment.set("CUBINERY_CACHE_LAYERS", "/a:/b c:");
  environment.set("CUBINERY_TEMPLATE_DIR", "::/t");
  CHECK(options().cache_layers == std::vector<std::string>{"/a", "/b c"});
  CHECK(options().template_dirs == std::vector<std::string>{"/t"});
}

TEST_CASE("WhereToRecordComesFromTheEnvironment", "[cpu]") {
  Environment environment;
  environment.set("CUBINERY_RECORD", "kernels.json");
  CHECK(options().record == "kernels.json");
}

TEST_CASE("TheCacheLimitIsANumberOfBytes", "[cpu]") {
  Environment environment;
  environment.set("CUBINERY_CACHE_LIMIT", "0");
  CHECK(options().cache_limit_bytes == 0);
  environment.set("CUBINERY_CACHE_LIMIT", "18446744073709551615");
  CHECK(options().cache_limit_bytes == ~std::uint64_t{0});
  environment.set("CUBINERY_CACHE_LIMIT", "64K");
  CHECK(options().cache_limit_bytes == 65536);
  environment.set("CUBINERY_CACHE_LIMIT", "1G");
  CHECK(options().cache_limit_bytes == std::uint64_t{1} << 30);
  environment.set("CUBINERY_CACHE_LIMIT", "2T");
  CHECK(options().cache_limit_bytes == std::uint64_t{2} << 40);
  for (const char* value : {"1X", "-1", "G", "1GB", "1 G", "1.5M", "16777216T", "1e9", " 1", "0x10",
                            "18446744073709551616", "many"}) {
    environment.set("CUBINERY_CACHE_LIMIT", value);
    CHECK(refusal() ==
          "CUBINERY_CACHE_LIMIT = \"" + std::string(value) +
              "\"; accepted: a number of bytes such as 4096, 64K, 512M, 1G or 2T (powers of 1024)");
  }
}

TEST_CASE("OfflineIsZeroOrOne", "[cpu]") {
  Environment environment;
  environment.set("CUBINERY_OFFLINE", "1");
  CHECK(options().offline);
  environment.set("CUBINERY_OFFLINE", "0");
  CHECK_FALSE(options().offline);
  for (const char* value : {"true", "yes", "2", "01", " 1"}) {
    environment.set("CUBINERY_OFFLINE", value);
    CHECK(refusal() == "CUBINERY_OFFLINE = \"" + std::string(value) + "\"; accepted: 0 or 1");
  }
}

TEST_CASE("TheDriverIsNamedByItsVariable", "[cpu]") {
  Environment environment;
  environment.set("CUBINERY_DRIVER", "/d/libcuda.so.1");
  CHECK(options().driver_path == "/d/libcuda.so.1");
}

TEST_CASE("NvrtcComesFromItsVariableThenFromAToolkitThatHasIt", "[cpu]") {
  const test::TempDir dir;
  const std::string home = dir.path() + "/home";
  const std::string path = dir.path() + "/path";
  for (const std::string& toolkit : {home, path}) {
    std::filesystem::create_directories(toolkit + "/lib64");
  }
  Environment environment;
  environment.set("CUDA_HOME", home);
  environment.set("CUDA_PATH", path);
  CHECK(options().nvrtc_path.empty());
  test::write_bytes(path + "/lib64/libnvrtc.so", "");
  CHECK(options().nvrtc_path == path + "/lib64/libnvrtc.so");
  test::write_bytes(home + "/lib64/libnvrtc.so", "");
  CHECK(options().nvrtc_path == home + "/lib64/libnvrtc.so");
  environment.set("CUBINERY_NVRTC", "/own/libnvrtc.so");
  CHECK(options().nvrtc_path == "/own/libnvrtc.so");
}

TEST_CASE("TheEnvironmentIsReadWhenAsked", "[cpu]") {
  Environment environment;
  const Options before = options();
  environment.set("CUBINERY_OFFLINE", "1");
  CHECK_FALSE(before.offline);
  CHECK(options().offline);
}

}  // namespace
}  // namespace cubinery::options_test
