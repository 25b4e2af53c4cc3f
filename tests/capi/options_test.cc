// cubinery_options_set(): every field of Options by name.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "capi/handles.h"
#include "tests/capi/handles.h"

namespace cubinery {
namespace {

using test::new_options;
using test::OptionsHandle;
using test::refused;
using Texts = std::vector<std::string>;

TEST_CASE("EveryFieldIsSetByItsName", "[cpu]") {
  const OptionsHandle handle = new_options();
  const std::pair<const char*, const char*> values[] = {
      {"device", "3"},
      {"arch", "sm_90a"},
      {"offline", "1"},
      {"nvrtc_path", "/n/libnvrtc.so"},
      {"nvcc_path", "/n/nvcc"},
      {"driver_path", "/d/libcuda.so"},
      {"cache_dir", "/c"},
      {"cache_layers", "/a::/b c:"},
      {"use_disk_cache", "0"},
      {"cache_limit_bytes", "18446744073709551615"},
      {"trust_shared_dirs", "1"},
      {"trust", "uid:65534,gid:2000,gid:0"},
      {"lock_wait", "1500"},
      {"template_dirs", "/t"},
      {"paths", "gdn_decode=portable:gdn_prefill=-split"},
      {"record", "/r/kernels.json"},
  };
  for (const auto& [field, value] : values) test::set(handle, field, value);
  // Does not compile when Options has a field that is not looked at here.
  const auto& [device, arch, offline, nvrtc_path, nvcc_path, driver_path, cache_dir, cache_layers,
               use_disk_cache, cache_limit_bytes, trust_shared_dirs, trust, lock_wait,
               template_dirs, paths, record, log] = handle->value;
  CHECK(device == 3);
  CHECK(arch == "sm_90a");
  CHECK(offline);
  CHECK(nvrtc_path == "/n/libnvrtc.so");
  CHECK(nvcc_path == "/n/nvcc");
  CHECK(driver_path == "/d/libcuda.so");
  CHECK(cache_dir == "/c");
  CHECK(cache_layers == Texts{"/a", "/b c"});
  CHECK(paths == Texts{"gdn_decode=portable", "gdn_prefill=-split"});
  CHECK(record == "/r/kernels.json");
  CHECK_FALSE(use_disk_cache);
  CHECK(cache_limit_bytes == ~std::uint64_t{0});
  CHECK(trust_shared_dirs);
  CHECK(trust.users == std::vector<std::uint32_t>{65534});
  CHECK(trust.groups == std::vector<std::uint32_t>{2000, 0});
  CHECK_FALSE(trust.everybody);
  CHECK(lock_wait == std::chrono::milliseconds(1500));
  CHECK(template_dirs == Texts{"/t"});
  CHECK_FALSE(log);
  test::set(handle, "cache_layers", "");
  CHECK(cache_layers.empty());
}

TEST_CASE("ABadValueIsRefusedAndChangesNothing", "[cpu]") {
  const OptionsHandle handle = new_options();
  const Options before = handle->value;
  const auto message = [&](const char* field, const char* value) {
    return refused(cubinery_options_set(handle.get(), field, value));
  };
  for (const char* value : {"", "-2", "0x0", "1 ", "99999999999"}) {
    CHECK(message("device", value) ==
          "Options::device = \"" + std::string(value) + "\"; accepted: an ordinal, or -1 for none");
  }
  CHECK(message("offline", "true") == "Options::offline = \"true\"; accepted: 0 or 1");
  CHECK(message("use_disk_cache", "") == "Options::use_disk_cache = \"\"; accepted: 0 or 1");
  CHECK(message("cache_limit_bytes", "1X") ==
        "Options::cache_limit_bytes = \"1X\"; accepted: a number of bytes such as 4096, 64K, 512M, "
        "1G or 2T (powers of 1024)");
  CHECK(message("trust", "nobody") ==
        "Options::trust = \"nobody\"; accepted: all, or ids of users and groups between commas "
        "such as uid:65534,gid:2000");
  CHECK(message("lock_wait", "-1") ==
        "Options::lock_wait = \"-1\"; accepted: a number of milliseconds");
  CHECK(handle->value.device == before.device);
  CHECK(handle->value.offline == before.offline);
  CHECK(handle->value.use_disk_cache == before.use_disk_cache);
  CHECK(handle->value.cache_limit_bytes == before.cache_limit_bytes);
  CHECK(handle->value.lock_wait == before.lock_wait);
}

TEST_CASE("AnUnknownFieldListsTheKnownOnes", "[cpu]") {
  const OptionsHandle handle = new_options();
  CHECK(refused(cubinery_options_set(handle.get(), "log", "1")) ==
        "Options has no field \"log\"; accepted: device, arch, offline, nvrtc_path, nvcc_path, "
        "driver_path, cache_dir, cache_layers, use_disk_cache, cache_limit_bytes, "
        "trust_shared_dirs, trust, lock_wait, template_dirs, paths, record");
}

TEST_CASE("NullsAmongTheArgumentsOfOptionsAreNamed", "[cpu]") {
  const OptionsHandle handle = new_options();
  CHECK(refused(cubinery_options_set(nullptr, "device", "0")).starts_with("options is NULL"));
  CHECK(refused(cubinery_options_set(handle.get(), nullptr, "0")).starts_with("field is NULL"));
  CHECK(refused(cubinery_options_set(handle.get(), "arch", nullptr)).starts_with("value is NULL"));
  CHECK(
      refused(cubinery_options_set_log(nullptr, nullptr, nullptr)).starts_with("options is NULL"));
}

TEST_CASE("TheLogReceivesLevelTextAndUser", "[cpu]") {
  const OptionsHandle handle = new_options();
  std::string told;
  const CubineryLog log = [](int level, const char* message, void* user) {
    *static_cast<std::string*>(user) += std::to_string(level) + " " + message + "\n";
  };
  REQUIRE(cubinery_options_set_log(handle.get(), log, &told) == CUBINERY_OK);
  const std::string text = "half of this";
  handle->value.log(LogLevel::kWarning, std::string_view(text).substr(0, 4));
  handle->value.log(LogLevel::kInfo, "b");
  CHECK(told == "1 half\n0 b\n");
  REQUIRE(cubinery_options_set_log(handle.get(), nullptr, &told) == CUBINERY_OK);
  CHECK_FALSE(handle->value.log);
}

TEST_CASE("OptionsBeginAsTheEnvironmentSays", "[cpu]") {
  const Options from_env = Options::from_env().value();
  const OptionsHandle handle = new_options();
  CHECK(handle->value.cache_dir == from_env.cache_dir);
  CHECK(handle->value.nvrtc_path == from_env.nvrtc_path);
}

}  // namespace
}  // namespace cubinery
