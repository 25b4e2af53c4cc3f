#include "cubinery/options.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace cubinery {
namespace {

std::string variable(const char* name) {
  const char* value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): documented, once per call
  return value != nullptr ? value : "";
}

std::vector<std::string> split_at_colons(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(':'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

std::string default_cache_dir() {
  if (std::string dir = variable("CUBINERY_CACHE_DIR"); !dir.empty()) return dir;
  if (const std::string dir = variable("XDG_CACHE_HOME"); !dir.empty()) return dir + "/cubinery";
  if (const std::string dir = variable("HOME"); !dir.empty()) return dir + "/.cache/cubinery";
  return "";
}

std::string chosen_nvrtc() {
  if (std::string path = variable("CUBINERY_NVRTC"); !path.empty()) return path;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::string home = variable(name);
    if (home.empty()) continue;
    for (const char* file : {"/lib64/libnvrtc.so", "/lib64/libnvrtc.so.13"}) {
      std::error_code ignored;
      if (std::filesystem::exists(home + file, ignored)) return home + file;
    }
  }
  return "";
}

}  // namespace

Result<Options> Options::from_env() {
  Options options;
  options.cache_dir = default_cache_dir();
  options.cache_layers = split_at_colons(variable("CUBINERY_CACHE_LAYERS"));
  options.template_dirs = split_at_colons(variable("CUBINERY_TEMPLATE_DIR"));
  options.nvrtc_path = chosen_nvrtc();
  options.driver_path = variable("CUBINERY_DRIVER");
  if (const std::string limit = variable("CUBINERY_CACHE_LIMIT"); !limit.empty()) {
    const char* end = limit.data() + limit.size();
    const auto [stop, error] = std::from_chars(limit.data(), end, options.cache_limit_bytes);
    if (error != std::errc() || stop != end) {
      return Status(Code::kInvalidArgument,
                    "CUBINERY_CACHE_LIMIT = \"" + limit + "\"; accepted: a number of bytes");
    }
  }
  const std::string offline = variable("CUBINERY_OFFLINE");
  if (!offline.empty() && offline != "0" && offline != "1") {
    return Status(Code::kInvalidArgument,
                  "CUBINERY_OFFLINE = \"" + offline + "\"; accepted: 0 or 1");
  }
  options.offline = offline == "1";
  return options;
}

}  // namespace cubinery
