#include "cubinery/options.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "codegen/utf8.h"
#include "runtime/jit/options_text.h"

namespace cubinery {

std::string environment_variable(const char* name) {
  const char* value =
      ::secure_getenv(name);  // NOLINT(concurrency-mt-unsafe): documented, once per call
  return value != nullptr ? value : "";
}

namespace {

std::string default_cache_dir() {
  if (std::string dir = environment_variable("CUBINERY_CACHE_DIR"); !dir.empty()) return dir;
  // Relative ones would be another directory for each working directory (XDG Base Directory
  // Specification: to be ignored).
  if (const std::string dir = environment_variable("XDG_CACHE_HOME"); dir.starts_with('/')) {
    return dir + "/cubinery";
  }
  if (const std::string dir = environment_variable("HOME"); dir.starts_with('/')) {
    return dir + "/.cache/cubinery";
  }
  return "";
}

// Whether it has control characters, or bytes that are no UTF-8.
bool has_hidden(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0 || (length == 1 && (text[0] < ' ' || text[0] == 0x7f))) return true;
    text.remove_prefix(length);
  }
  return false;
}

// What a variable names, or the first of these files in the toolkit that the environment names.
std::string of_toolkit(const char* name, std::initializer_list<const char*> files) {
  if (std::string path = environment_variable(name); !path.empty()) return path;
  for (const char* toolkit : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::string home = environment_variable(toolkit);
    if (home.empty()) continue;
    for (const char* file : files) {
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

Status check_directories(const Options& options) {
  const auto check = [](const char* name, const std::string& path) {
    if (path != "~" && !path.starts_with("~/")) return Status();
    return Status(Code::kInvalidArgument,
                  std::string("Options::") + name + " has \"" + path +
                      "\"; accepted: a path, in which only a shell expands ~ (\"./~\" is a folder "
                      "of that name)");
  };
  CUBINERY_RETURN_IF_ERROR(check("cache_dir", options.cache_dir));
  for (const std::string& layer : options.cache_layers)
    CUBINERY_RETURN_IF_ERROR(check("cache_layers", layer));
  for (const std::string& folder : options.template_dirs)
    CUBINERY_RETURN_IF_ERROR(check("template_dirs", folder));
  CUBINERY_RETURN_IF_ERROR(check("record", options.record));
  return {};
}

std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("/._-+=:,@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  // What a terminal does not show stands in octal, in the quotes that know escapes.
  const bool escapes = has_hidden(text);
  std::string quoted = escapes ? "$'" : "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (escapes && (byte < ' ' || byte >= 0x7f)) {
      quoted += '\\';
      for (const int shift : {6, 3, 0}) quoted += static_cast<char>('0' + ((byte >> shift) & 7));
    } else if (escapes && (c == '\'' || c == '\\')) {
      quoted += {'\\', c};
    } else if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string shell_path(std::string_view path) {
  return path.starts_with('-') ? shell_word("./" + std::string(path)) : shell_word(path);
}

std::string shell_option(std::string_view name, std::string_view value) {
  const std::string option(name);
  return value.starts_with('-') ? shell_word(option + "=" + std::string(value))
                                : option + " " + shell_word(value);
}

Result<Options> Options::from_env() {
  Options options;
  options.cache_dir = default_cache_dir();
  options.cache_layers = split_at_colons(environment_variable("CUBINERY_CACHE_LAYERS"));
  options.template_dirs = split_at_colons(environment_variable("CUBINERY_TEMPLATE_DIR"));
  options.paths = split_at_colons(environment_variable("CUBINERY_PATHS"));
  options.nvrtc_path = of_toolkit(
      "CUBINERY_NVRTC", {"/lib64/libnvrtc.so", "/lib64/libnvrtc.so.13", "/lib64/libnvrtc.so.12"});
  options.nvcc_path = of_toolkit("CUBINERY_NVCC", {"/bin/nvcc"});
  options.driver_path = environment_variable("CUBINERY_DRIVER");
  options.record = environment_variable("CUBINERY_RECORD");
  if (const std::string limit = environment_variable("CUBINERY_CACHE_LIMIT"); !limit.empty()) {
    const std::optional<std::uint64_t> bytes = parse_bytes(limit);
    if (!bytes) {
      return Status(Code::kInvalidArgument,
                    "CUBINERY_CACHE_LIMIT = \"" + limit + "\"; accepted: " + kBytesAccepted);
    }
    options.cache_limit_bytes = *bytes;
  }
  const std::string trust = environment_variable("CUBINERY_TRUST");
  std::optional<Trust> trusted = parse_trust(trust);
  if (!trusted) {
    return Status(Code::kInvalidArgument,
                  "CUBINERY_TRUST = \"" + trust + "\"; accepted: " + kTrustAccepted);
  }
  options.trust = *std::move(trusted);
  const std::string offline = environment_variable("CUBINERY_OFFLINE");
  if (!offline.empty() && !parse_switch(offline, &options.offline)) {
    return Status(Code::kInvalidArgument,
                  "CUBINERY_OFFLINE = \"" + offline + "\"; accepted: 0 or 1");
  }
  return options;
}

}  // namespace cubinery
