#include "cubinery/options.h"

#include <stdlib.h>

#include <filesystem>

#include "runtime/jit/options_text.h"

namespace cubinery {
namespace {

// The one door for the environment.  Whoever starts a privileged process chooses its environment,
// and must not choose what it runs: there every variable is as good as unset.
std::string variable(const char* name) {
  const char* value =
      ::secure_getenv(name);  // NOLINT(concurrency-mt-unsafe): documented, once per call
  return value != nullptr ? value : "";
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

Status check_paths(const std::vector<std::string>& paths) {
  for (const std::string& option : paths) {
    const std::size_t equals = option.find('=');
    if (equals != 0 && equals != option.npos &&
        option.find_first_not_of('-', equals + 1) != option.npos) {
      continue;
    }
    return Status(Code::kInvalidArgument,
                  "Options::paths has \"" + option +
                      "\"; accepted: \"operator=path\" (only that path) and \"operator=-path\" "
                      "(never that one)");
  }
  return {};
}

Result<Options> Options::from_env() {
  Options options;
  options.cache_dir = default_cache_dir();
  options.cache_layers = split_at_colons(variable("CUBINERY_CACHE_LAYERS"));
  options.template_dirs = split_at_colons(variable("CUBINERY_TEMPLATE_DIR"));
  options.paths = split_at_colons(variable("CUBINERY_PATHS"));
  options.nvrtc_path = chosen_nvrtc();
  options.driver_path = variable("CUBINERY_DRIVER");
  if (const std::string limit = variable("CUBINERY_CACHE_LIMIT"); !limit.empty()) {
    const std::optional<std::uint64_t> bytes = parse_bytes(limit);
    if (!bytes) {
      return Status(Code::kInvalidArgument,
                    "CUBINERY_CACHE_LIMIT = \"" + limit + "\"; accepted: " + kBytesAccepted);
    }
    options.cache_limit_bytes = *bytes;
  }
  const std::string offline = variable("CUBINERY_OFFLINE");
  if (!offline.empty() && !parse_switch(offline, &options.offline)) {
    return Status(Code::kInvalidArgument,
                  "CUBINERY_OFFLINE = \"" + offline + "\"; accepted: 0 or 1");
  }
  return options;
}

}  // namespace cubinery
