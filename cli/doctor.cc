// cubinery doctor: whether this machine can make and run kernels, and what to do if not.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache/layer.h"
#include "cache/trust.h"
#include "cli/commands.h"
#include "cli/gpus.h"
#include "cli/library_options.h"
#include "cli/print.h"
#include "cli/trial.h"
#include "cubinery/gdn.h"
#include "runtime/jit/nvrtc.h"
#include "runtime/jit/options_text.h"

namespace cubinery {
namespace {

// What is compiled for where no GPU says it.
constexpr const char* kTrialArch = "sm_90a";

enum class Health { kOk, kWarn, kFail };

const char* to_string(Health health) {
  return health == Health::kOk ? "OK" : health == Health::kWarn ? "WARN" : "FAIL";
}

struct Finding {
  Health health = Health::kOk;
  std::string subject;
  std::string text;
  std::string advice;  // what to do, unless OK
};

// A directory of our own that goes away with everything in it.
class TemporaryDir {
 public:
  TemporaryDir() {
    std::error_code ignored;
    path_ = (std::filesystem::temp_directory_path(ignored) / "cubinery-doctor-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~TemporaryDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDir(const TemporaryDir&) = delete;
  TemporaryDir& operator=(const TemporaryDir&) = delete;
  // Empty when there is none.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Why the directory of a cache cannot be listed, though it is there; empty: it can.
std::string unreadable(const Store& store) {
  for (const UnlistedLayer& layer : store.unlisted()) {
    if (layer.path == store.options().dir && !layer.is_absent) return layer.why;
  }
  return {};
}

class Doctor {
 public:
  explicit Doctor(Options options) : options_(std::move(options)) {}
  const std::vector<Finding>& examine();
  // After examine(): in one sentence whether this machine is in order, and what to do next.
  std::string verdict() const;

 private:
  void add(Health health, std::string subject, std::string text, std::string advice = {});
  void driver();
  void gpu(const Gpu& gpu);
  void nvrtc();
  void trust();
  void cache();
  void layers(const Store& store);
  void pack(const std::string& path);
  std::vector<std::string> archs_of_gpus() const;         // each once
  std::vector<std::string> archs_to_compile_for() const;  // those, or kTrialArch
  void trials();
  void trial_compile(const std::string& arch, const std::string& dir);
  void trial_launches(const std::string& dir);
  // Each once, of the findings that are so; "driver, cache".
  std::string subjects(Health health) const;

  const Options options_;
  std::vector<Gpu> gpus_;
  int driver_version_ = 0;  // 0: none that can be used
  bool has_nvrtc_ = false;
  std::size_t entries_ = 0;            // that can be used, of the cache and its layers
  std::vector<std::string> launched_;  // "GPU 0 (NVIDIA H200, sm_90a)"
  std::vector<Finding> findings_;
};

void Doctor::add(Health health, std::string subject, std::string text, std::string advice) {
  // Messages of the library name their subject themselves.
  for (const std::string_view prefix : {"driver: ", "NVRTC: "}) {
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  }
  findings_.push_back({health, std::move(subject), std::move(text), std::move(advice)});
}

void Doctor::driver() {
  // A GPU without a driver is broken; neither is a machine that may still pre-warm.
  std::error_code ignored;
  const bool has_gpu = std::filesystem::exists("/dev/nvidiactl", ignored);
  const std::string advice =
      has_gpu ? fmt::format(
                    "install a driver for CUDA {} or newer, and check that this user and "
                    "container may use the GPU",
                    driver_version_text(kMinDriverVersion))
              : "nothing, if this machine only pre-warms; kernels run on NVIDIA GPUs only";
  const Result<std::shared_ptr<const Driver>> driver = Driver::open(options_.driver_path);
  if (!driver) {
    const bool is_absent = !has_gpu && options_.driver_path.empty();
    const std::string why(is_absent ? "none, and no GPU" : driver.error().message());
    return add(has_gpu ? Health::kFail : Health::kWarn, "driver", why, advice);
  }
  driver_version_ = (*driver)->version();
  add(Health::kOk, "driver", fmt::format("for CUDA {}", driver_version_text(driver_version_)));
  Result<std::vector<Gpu>> gpus = list_gpus(**driver);
  if (!gpus) return add(Health::kFail, "gpu", std::string(gpus.error().message()), advice);
  gpus_ = *std::move(gpus);
  if (gpus_.empty()) add(Health::kWarn, "gpu", "the driver reports none", advice);
  for (const Gpu& found : gpus_) gpu(found);
}

void Doctor::gpu(const Gpu& gpu) {
  const std::string text =
      fmt::format("{}: {}, compute capability {}.{}", gpu.ordinal, gpu.name, gpu.major, gpu.minor);
  if (gpu.arch) return add(Health::kOk, "gpu", fmt::format("{}, {}", text, *gpu.arch));
  add(Health::kWarn, "gpu", text + ", not supported",
      "use another GPU; supported are " + join(known_architectures()));
}

void Doctor::nvrtc() {
  if (options_.offline) return add(Health::kOk, "nvrtc", "not needed: CUBINERY_OFFLINE=1");
  const Result<std::shared_ptr<const Nvrtc>> nvrtc =
      Nvrtc::open(options_.nvrtc_path, trust_of(options_), driver_version_);
  has_nvrtc_ = nvrtc.has_value();
  if (nvrtc) {
    for (const std::string& refused : (*nvrtc)->passed_over()) {
      add(Health::kWarn, "nvrtc", "passed over " + refused,
          "as it says, or remove it where nobody needs it");
    }
    return add(Health::kOk, "nvrtc", fmt::format("{}, {}", (*nvrtc)->version(), (*nvrtc)->path()));
  }
  add(Health::kFail, "nvrtc", std::string(nvrtc.error().message()),
      "install it, or set CUBINERY_OFFLINE=1 where the cache holds every kernel");
}

// Whether an entry is of use to one of these GPUs, where nothing is compiled.
bool can_serve(const ListedEntry& listed, const std::vector<std::string>& archs) {
  if (!listed.entry || !listed.problem.empty()) return false;
  const std::string& arch = listed.entry->identity.arch;
  return archs.empty() || std::find(archs.begin(), archs.end(), arch) != archs.end();
}

void Doctor::trust() {
  const std::string others = to_text(trust_of(options_));
  add(Health::kOk, "trust",
      others == "all"  ? "files of everybody (CUBINERY_TRUST=all): they run code as this user"
      : others.empty() ? "files of this user and root"
                       : fmt::format("files of this user, root and {}", others));
}

void Doctor::cache() {
  if (options_.cache_dir.empty()) {
    return add(Health::kFail, "cache", "no home directory", "name a directory with --cache-dir");
  }
  Store store(store_options(options_));
  std::uint64_t bytes = 0;
  std::uint64_t bad = 0;
  std::uint64_t count = 0;
  const std::vector<std::string> archs = archs_of_gpus();
  store.for_each([&](const ListedEntry& listed) {
    if (can_serve(listed, archs)) ++entries_;
    if (!listed.path.starts_with(options_.cache_dir + "/")) return;
    ++count;
    bytes += listed.bytes;
    if (!listed.problem.empty()) ++bad;
  });
  const std::string text =
      fmt::format("{}: {} entries, {} of at most {}", options_.cache_dir, count, bytes_text(bytes),
                  bytes_text(options_.cache_limit_bytes));
  const Status writable = store.check_writable();
  const Status trusted = store.check_trusted(options_.cache_dir);
  if (!trusted.ok()) {
    add(Health::kFail, "cache", std::string(trusted.message()),
        "what it says, by CUBINERY_TRUST or --trust; or chown the directory, or use another one "
        "with "
        "--cache-dir");
  } else if (const std::string why = unreadable(store); !why.empty()) {
    add(Health::kFail, "cache", why,
        fmt::format(
            "as its owner: chmod -R a+rX {}, and name it in --cache-layers; or cubinery cache "
            "export, and name the pack there",
            shell_path(options_.cache_dir)));
  } else if (!writable.ok()) {
    add(Health::kWarn, "cache", fmt::format("{}; {}", text, writable.message()),
        "make it writable, or every process compiles what it lacks again");
  } else if (bad > 0) {
    add(Health::kWarn, "cache", fmt::format("{}; {} of them cannot be used", text, bad),
        "cubinery cache verify --remove");
  } else {
    add(Health::kOk, "cache", text);
  }
  layers(store);
  if (!options_.offline || entries_ > 0) return;
  add(Health::kFail, "offline",
      fmt::format("no directory or layer has an entry{} that can be used, and nothing is compiled",
                  archs.empty() ? "" : " for " + join(archs)),
      "cubinery prewarm where NVRTC is, or name a filled cache or pack in --cache-layers");
}

void Doctor::pack(const std::string& path) {
  const Layer layer = open_layer(*posix_env(), path, trust_of(options_));
  if (!layer.trouble.empty()) {
    add(Health::kFail, "layer", fmt::format("{}: {}", path, layer.trouble),
        "export the pack again, or remove it from the cache layers");
  } else {
    add(Health::kOk, "layer",
        fmt::format("{}: a pack of {} entries, {}", path, layer.pack->records().size(),
                    bytes_text(layer.info.bytes)));
  }
}

void Doctor::layers(const Store& store) {
  for (const std::string& layer : options_.cache_layers) {
    std::error_code ignored;
    const Status trusted = store.check_trusted(layer);
    if (std::filesystem::is_regular_file(layer, ignored)) {
      pack(layer);
    } else if (!std::filesystem::is_directory(layer, ignored)) {
      add(Health::kWarn, "layer", layer + ": no such directory or pack",
          "remove it from the cache layers");
    } else if (!trusted.ok()) {
      add(Health::kFail, "layer", std::string(trusted.message()),
          "what it says, by CUBINERY_TRUST or --trust; or chown the directory");
    } else {
      add(Health::kOk, "layer", layer);
    }
  }
}

std::vector<std::string> Doctor::archs_of_gpus() const {
  std::vector<std::string> archs;
  for (const Gpu& gpu : gpus_) {
    if (gpu.arch && std::find(archs.begin(), archs.end(), *gpu.arch) == archs.end()) {
      archs.push_back(*gpu.arch);
    }
  }
  return archs;
}

void Doctor::trial_compile(const std::string& arch, const std::string& dir) {
  Options options = options_;
  options.arch = arch;
  options.cache_dir = dir;
  options.cache_layers.clear();
  const Result<std::vector<KernelSpec>> specs = gdn::DecodeProblem{}.kernels(arch);
  const Result<Context> context = Context::create(options);
  if (!specs || !context) {
    const Status& error = specs ? context.error() : specs.error();
    return add(Health::kFail, "compile", std::string(error.message()), "report this as a bug");
  }
  double ms = 0;
  for (const KernelSpec& spec : *specs) {
    const Result<CompiledKernel> compiled = context->compile(spec);
    if (!compiled) {
      return add(Health::kFail, "compile", std::string(compiled.error().message()),
                 "report this as a bug, with the log of cubinery prewarm");
    }
    ms += compiled->info.compile_ms;
  }
  add(Health::kOk, "compile",
      fmt::format("{} kernels of gdn_decode for {} in {:.1f} s", specs->size(), arch, ms / 1e3));
}

void Doctor::trial_launches(const std::string& dir) {
  const auto known = [](const Gpu& gpu) { return gpu.arch.has_value(); };
  if (std::none_of(gpus_.begin(), gpus_.end(), known)) {
    add(Health::kWarn, "launch", "not tried: no supported GPU",
        "run doctor where kernels will run");
  }
  for (const Gpu& gpu : gpus_) {
    if (!gpu.arch) continue;
    Options options = options_;
    options.device = gpu.ordinal;
    options.cache_dir = dir;
    options.cache_layers.clear();
    const Status status = trial_launch(options);
    if (status.ok()) {
      add(Health::kOk, "launch",
          fmt::format("gdn_decode on GPU {}: numbers are right", gpu.ordinal));
      launched_.push_back(fmt::format("GPU {} ({}, {})", gpu.ordinal, gpu.name, *gpu.arch));
    } else {
      add(Health::kFail, "launch", fmt::format("GPU {}: {}", gpu.ordinal, status.message()),
          "see the lines above; wrong numbers are a bug or a broken GPU");
    }
  }
}

std::vector<std::string> Doctor::archs_to_compile_for() const {
  std::vector<std::string> archs = archs_of_gpus();
  if (archs.empty()) archs.emplace_back(kTrialArch);
  return archs;
}

void Doctor::trials() {
  if (options_.offline) {
    return add(Health::kOk, "compile", "not tried: CUBINERY_OFFLINE=1 forbids it");
  }
  if (!has_nvrtc_) return add(Health::kWarn, "compile", "not tried: no NVRTC", "see nvrtc above");
  const TemporaryDir dir;
  if (dir.path().empty()) {
    return add(Health::kFail, "compile", "no temporary directory can be made",
               "set TMPDIR to a writable one");
  }
  for (const std::string& arch : archs_to_compile_for()) trial_compile(arch, dir.path());
  trial_launches(dir.path());
}

const std::vector<Finding>& Doctor::examine() {
  driver();
  nvrtc();
  trust();
  cache();
  trials();
  return findings_;
}

std::string Doctor::subjects(Health health) const {
  std::vector<std::string> subjects;
  for (const Finding& finding : findings_) {
    // Without a GPU it is these that say so.
    const bool is_of_gpu =
        finding.subject == "driver" || finding.subject == "gpu" || finding.subject == "launch";
    if (finding.health != health || (health == Health::kWarn && is_of_gpu)) continue;
    if (std::find(subjects.begin(), subjects.end(), finding.subject) == subjects.end()) {
      subjects.push_back(finding.subject);
    }
  }
  return join(subjects);
}

std::string Doctor::verdict() const {
  if (const std::string failed = subjects(Health::kFail); !failed.empty()) {
    return fmt::format("Not in order: {}. Do what stands behind ->, and run doctor again.", failed);
  }
  const std::string prewarm = fmt::format("cubinery prewarm --hf-config config.json --arch {}",
                                          fmt::join(archs_to_compile_for(), ","));
  const std::string warned = subjects(Health::kWarn);
  const std::string begin =
      warned.empty() ? "In order" : fmt::format("In order, but for the warnings of {}", warned);
  if (options_.offline) {
    return fmt::format(
        "{}: {} kernels are there, and nothing is compiled. Whether a model finds all of its own "
        "says: CUBINERY_OFFLINE=1 {}",
        begin, entries_, prewarm);
  }
  return fmt::format("{}: kernels compile, and {}. Next: {}", begin,
                     launched_.empty() ? "there is no GPU here to run them on"
                                       : "give right numbers on " + join(launched_),
                     prewarm);
}

int run(const LibraryOptions& library, const std::string& json) {
  if (const Status bad = check_output(json); !bad.ok()) return usage_error(bad);
  const Result<Options> options = library.resolve();
  if (!options) return usage_error(options.error());
  Doctor doctor(*options);
  const std::vector<Finding>& findings = doctor.examine();
  bool failed = false;
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    failed = failed || finding.health == Health::kFail;
    checks.push_back({{"verdict", to_string(finding.health)},
                      {"subject", finding.subject},
                      {"text", finding.text},
                      {"advice", finding.advice}});
    if (json == "-") continue;
    print(fmt::format("{:<4}  {:<8} {}{}\n", to_string(finding.health), finding.subject,
                      finding.text, finding.advice.empty() ? "" : " -> " + finding.advice));
  }
  const std::string verdict = doctor.verdict();
  if (json != "-") print(verdict + "\n");
  if (!json.empty()) {
    const Status written =
        write_json(json, {{"ok", !failed}, {"summary", verdict}, {"checks", std::move(checks)}});
    if (!written.ok()) return exit_code_of(written);
  }
  return failed ? kExitFailed : kExitOk;
}

}  // namespace

void add_doctor(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("doctor", "Check driver, GPU, NVRTC and cache; try a kernel");
  const auto library = std::make_shared<LibraryOptions>();
  const auto json = std::make_shared<std::string>();
  library->add_to(*command, LibraryOptions::Scope::kCompiler);
  command->add_option("--json", *json, "Write the findings, to stdout with -")->type_name("FILE");
  command->footer(
      "One line for each check: OK, WARN or FAIL, and unless OK what to do.  No GPU is a WARN.\n"
      "The last line says whether all is in order, and what comes next.\n"
      "Exit code: 0, or 1 when something FAILs.");
  command->callback([library, json, exit_code] { *exit_code = run(*library, *json); });
}

}  // namespace cubinery
