#include "cubinery/context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <vector>

#include "codegen/nearest.h"
#include "runtime/jit/context_state.h"
#include "runtime/jit/options_text.h"

namespace cubinery {
namespace {

// Whether this process may do more than the user who started it, and acts as that user all the
// same: file capabilities, or another group.  That user's files are then not this process's own.
bool has_foreign_home() { return getauxval(AT_SECURE) != 0 && getuid() == geteuid(); }

// ~/.cache/cubinery by the password database: the environment is read in Options::from_env() only.
std::string home_cache_dir() {
  if (has_foreign_home()) return "";
  std::vector<char> buffer(4096);  // a thread's stack may be small
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return "";
  }
  return std::string(entry.pw_dir) + "/.cache/cubinery";
}

Status unknown_arch(std::string_view arch) {
  const std::vector<std::string>& known = known_architectures();
  return Status(Code::kInvalidArgument,
                fmt::format("Options::arch = \"{}\"; accepted: {}{}", arch, fmt::join(known, ", "),
                            did_you_mean(arch, known)));
}

// The architecture to compile for: the caller's, checked against the device if there is one, or the
// device's.
Result<std::string> choose_arch(const std::string& wanted, const Device* device) {
  const std::optional<Arch> arch = wanted.empty() && device != nullptr
                                       ? native_arch(device->major(), device->minor())
                                       : parse_arch(wanted);
  if (arch && (device == nullptr || runs_on(*arch, device->major(), device->minor()))) {
    return arch->name();
  }
  if (device == nullptr || (!arch && !wanted.empty())) return unknown_arch(wanted);
  const int capability = device->major() * 10 + device->minor();
  if (!arch) {
    return Status(Code::kUnsupported,
                  fmt::format("device {} ({}, sm_{}) has no known architecture; supported: {}",
                              device->ordinal(), device->name(), capability,
                              fmt::join(known_architectures(), ", ")));
  }
  return Status(Code::kUnsupported,
                fmt::format("Options::arch = \"{}\" does not run on device {} ({}, "
                            "sm_{}); leave it empty for the device's own",
                            wanted, device->ordinal(), device->name(), capability));
}

std::unique_ptr<Store> open_store(const Options& options) {
  StoreOptions of_store = store_options(options);
  if (of_store.dir.empty()) of_store.dir = home_cache_dir();
  if (of_store.dir.empty()) {
    if (options.log) {
      options.log(LogLevel::kWarning,
                  has_foreign_home()
                      ? "cache: the home directory is that of the user who started this "
                        "privileged process; set Options::cache_dir"
                      : "cache: no home directory for this user; set Options::cache_dir");
    }
    return nullptr;
  }
  return std::make_unique<Store>(std::move(of_store));
}

}  // namespace

const char* to_string(Source source) {
  switch (source) {
    case Source::kMemory:
      return "memory";
    case Source::kDisk:
      return "disk";
    case Source::kCompiled:
      return "compiled";
  }
  return "?";
}

Result<Context> Context::create(Options options) {
  CUBINERY_RETURN_IF_ERROR(check_paths(options.paths));
  CUBINERY_RETURN_IF_ERROR(check_directories(options));
  auto state = std::make_shared<State>();
  if (options.device != kNoDevice) {
    Result<std::shared_ptr<const Driver>> driver = Driver::open(options.driver_path);
    if (!driver) return std::move(driver).error();
    Result<std::shared_ptr<const Device>> device = Device::open(std::move(*driver), options.device);
    if (!device) return std::move(device).error();
    state->device = std::move(*device);
  }
  Result<std::string> arch = choose_arch(options.arch, state->device.get());
  if (!arch) return std::move(arch).error();
  state->arch = std::move(*arch);
  if (options.use_disk_cache) state->store = open_store(options);
  state->included = std::make_unique<IncludedFiles>(trust_of(options));
  if (!options.record.empty()) {
    state->recorder = std::make_unique<Recorder>(options.record, options.log);
  }
  state->options = std::move(options);
  return Context(std::move(state));
}

Result<Kernel> Context::get(const KernelSpec& spec) const {
  const Result<Recipe> recipe = state_->recipe(spec, /*to_load=*/true);
  if (!recipe) return recipe.error().clone();
  return state_->recorded(spec, state_->get(*recipe));
}

Result<Kernel> Context::get(const KernelSource& source) const {
  const Result<Recipe> recipe = state_->recipe(source, /*to_load=*/true);
  if (!recipe) return recipe.error().clone();
  return state_->recorded(source, state_->get(*recipe));
}

Result<CompiledKernel> Context::compile(const KernelSpec& spec) const {
  const Result<Recipe> recipe = state_->recipe(spec);
  if (!recipe) return recipe.error().clone();
  return state_->recorded(spec, state_->compile(*recipe));
}

Result<CompiledKernel> Context::compile(const KernelSource& source) const {
  const Result<Recipe> recipe = state_->recipe(source);
  if (!recipe) return recipe.error().clone();
  return state_->recorded(source, state_->compile(*recipe));
}

Result<Explanation> Context::explain(const KernelSpec& spec) const {
  const Result<Recipe> recipe = state_->recipe(spec);
  return recipe ? state_->explain(*recipe) : recipe.error().clone();
}

Result<Explanation> Context::explain(const KernelSource& source) const {
  const Result<Recipe> recipe = state_->recipe(source);
  return recipe ? state_->explain(*recipe) : recipe.error().clone();
}

Result<std::string> Context::listing(const KernelSpec& spec, Listing form) const {
  const Result<Recipe> recipe = state_->recipe(spec);
  return recipe ? state_->listing(*recipe, form) : recipe.error().clone();
}

Result<std::string> Context::listing(const KernelSource& source, Listing form) const {
  const Result<Recipe> recipe = state_->recipe(source);
  return recipe ? state_->listing(*recipe, form) : recipe.error().clone();
}

const std::string& Context::arch() const& { return state_->arch; }

int Context::device() const { return state_->options.device; }

int Context::sm_count() const { return state_->device ? state_->device->sm_count() : 0; }

Result<std::string> Context::nvrtc_version() const {
  if (!state_->knows(Compiler::kNvrtc)) CUBINERY_RETURN_IF_ERROR(state_->process.check());
  const LazyCompiler::Opened& nvrtc = state_->compiler(Compiler::kNvrtc);
  if (!nvrtc) return nvrtc.error().clone();
  return (*nvrtc)->version();
}

CacheStats Context::stats() const { return state_->stats(); }

}  // namespace cubinery
