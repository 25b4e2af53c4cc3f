// Prints what Options::from_env() makes of the environment, and which cache a context then uses.
#include <cstdio>
#include <string>

#include "cubinery/context.h"

namespace {

void print(const char* name, const std::string& value) {
  std::printf("%s=%s\n", name, value.c_str());
}

void print(const char* name, const std::vector<std::string>& values) {
  for (const std::string& value : values) print(name, value);
}

}  // namespace

int main() {
  cubinery::Result<cubinery::Options> options = cubinery::Options::from_env();
  if (!options) {
    std::printf("%s\n", std::string(options.error().message()).c_str());
    return 1;
  }
  print("cache_dir", options->cache_dir);
  print("cache_layers", options->cache_layers);
  print("template_dirs", options->template_dirs);
  print("paths", options->paths);
  print("nvrtc_path", options->nvrtc_path);
  print("nvcc_path", options->nvcc_path);
  print("record", options->record);
  print("driver_path", options->driver_path);
  print("cache_limit_bytes", std::to_string(options->cache_limit_bytes));
  if (options->trust.everybody) print("trust", "all");
  print("offline", std::to_string(static_cast<int>(options->offline)));
  options->device = cubinery::kNoDevice;
  options->arch = "sm_90a";
  options->offline = true;
  options->log = [](cubinery::LogLevel, std::string_view text) { print("log", std::string(text)); };
  return cubinery::Context::create(*options) ? 0 : 1;
}
