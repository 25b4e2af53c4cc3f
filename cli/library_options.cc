#include "cli/library_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "cli/print.h"
#include "runtime/jit/options_text.h"

namespace cubinery {
namespace {

constexpr const char* kGroup = "Library";

void log_to_stderr(LogLevel level, std::string_view text) {
  // On a terminal the line may hold a progress bar: wipe it.
  const std::string line =
      fmt::format("{}{}: {}\n", isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "",
                  level == LogLevel::kWarning ? "warning" : "info", visible(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void LibraryOptions::add_to(CLI::App& app, Scope scope) {
  app.add_option("--cache-dir", cache_dir_, "Writable cache directory [$CUBINERY_CACHE_DIR]")
      ->type_name("DIR")
      ->group(kGroup);
  app.add_option("--cache-layers", cache_layers_,
                 "Read-only directories and packs below it [$CUBINERY_CACHE_LAYERS]")
      ->type_name("PATH:PATH:...")
      ->group(kGroup);
  app.add_option("--trust", trust_,
                 "Load cubins and templates of these users and groups too: uid:65534,gid:2000, or "
                 "all [$CUBINERY_TRUST]")
      ->type_name("IDS")
      ->group(kGroup);
  app.add_flag("--trust-shared-dirs", trust_shared_dirs_, "As --trust all")->group(kGroup);
  app.add_flag("--verbose", verbose_, "Show what the library does, on stderr")->group(kGroup);
  if (scope == Scope::kCache) return;
  app.add_option("--nvrtc", nvrtc_, "Path of libnvrtc.so [$CUBINERY_NVRTC]")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--nvcc", nvcc_, "Path of nvcc, for texts that ask for it [$CUBINERY_NVCC]")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--template-dir", template_dirs_,
                 "Folder of templates before those inside the library (repeatable) "
                 "[$CUBINERY_TEMPLATE_DIR]")
      ->type_name("DIR")
      ->group(kGroup);
}

Result<Options> LibraryOptions::resolve() const {
  Result<Options> from_env = Options::from_env();
  if (!from_env) return from_env;
  Options options = *std::move(from_env);
  options.device = kNoDevice;
  options.record.clear();  // what programs ask for, not what commands make of it
  if (!cache_dir_.empty()) options.cache_dir = cache_dir_;
  if (!cache_layers_.empty()) options.cache_layers = split_at_colons(cache_layers_);
  if (!nvrtc_.empty()) options.nvrtc_path = nvrtc_;
  if (!nvcc_.empty()) options.nvcc_path = nvcc_;
  if (!template_dirs_.empty()) options.template_dirs = template_dirs_;
  CUBINERY_RETURN_IF_ERROR(check_directories(options));
  for (const std::string& folder : options.template_dirs) {
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) continue;
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} {}: no such directory; accepted: a folder of templates, each as "
                    "KERNEL/KERNEL.cu",
                    template_dirs_.empty() ? "CUBINERY_TEMPLATE_DIR" : "--template-dir", folder));
  }
  if (!trust_.empty()) {
    std::optional<Trust> trust = parse_trust(trust_);
    if (!trust) {
      return Status(Code::kInvalidArgument,
                    fmt::format("--trust {}; accepted: {}", trust_, kTrustAccepted));
    }
    options.trust = *std::move(trust);
  }
  options.trust_shared_dirs = trust_shared_dirs_;
  options.log = [verbose = verbose_](LogLevel level, std::string_view text) {
    if (verbose || level == LogLevel::kWarning) log_to_stderr(level, text);
  };
  return options;
}

Status LibraryOptions::check_template_dirs(const std::vector<Job>& jobs) const {
  std::set<std::string> names = {"common"};  // whose headers may be replaced
  for (const Job& job : jobs) names.insert(job.kernel.name());
  for (const std::string& folder : template_dirs_) {
    const auto is_there = [&](const std::string& name) {
      std::error_code ignored;
      return std::filesystem::is_directory(std::filesystem::path(folder) / name, ignored);
    };
    if (std::any_of(names.begin(), names.end(), is_there)) continue;
    return Status(
        Code::kInvalidArgument,
        fmt::format("--template-dir {}: nothing for these kernels; accepted: a folder that "
                    "holds one of {}",
                    folder, join({names.begin(), names.end()})));
  }
  return {};
}

}  // namespace cubinery
