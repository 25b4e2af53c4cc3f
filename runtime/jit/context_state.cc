// From a key to a cubin: memory, disk, compiler, in this order.
#include "runtime/jit/context_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <functional>

#include "cache/cubin_note.h"
#include "runtime/jit/kernel_info.h"
#include "runtime/jit/kernel_state.h"
#include "runtime/jit/options_text.h"

namespace cubinery {
namespace {

std::vector<std::string> compile_options(const KernelSpec& spec, const std::string& arch) {
  std::vector<std::string> options = fixed_compile_options();
  options.push_back("--gpu-architecture=" + arch);
  options.push_back("-DCUBINERY_KEY=" + spec.initializer);
  return options;
}

// Why launches could not pass their parameter struct to the cubin's kernel.
Status check_parameter(const KernelSpec& spec, std::string_view cubin) {
  const std::optional<KernelParameters> parameters = read_parameters(cubin, spec.kernel);
  if (!parameters) return {};
  if (parameters->count != 1) {
    return internal::key_error(
        Code::kCompileFailed,
        fmt::format("{} takes {} parameters; accepted: one, the struct Fields::Params", spec.kernel,
                    parameters->count),
        spec.canonical);
  }
  if (parameters->bytes == spec.param_bytes) return {};
  return internal::key_error(Code::kInvalidKey,
                             wrong_parameter(parameters->bytes, spec.param_bytes), spec.canonical);
}

KernelInfo info_of(const Identity& identity) {
  return {.kernel = identity.kernel,
          .canonical = identity.key,
          .arch = identity.arch,
          .nvrtc = identity.nvrtc,
          .log = {}};
}

}  // namespace

const std::vector<std::string>& fixed_compile_options() {
  static const std::vector<std::string> kOptions = {
      "-std=c++20",
      "-default-device",
      "--no-source-include",         // no file of the working directory that no identity names
      "--modify-stack-limit=false",  // the default changes a limit of the whole process
      "-Xptxas=-v",                  // resources in the log
      "--no-cache",                  // the driver's own cache would swallow the log
  };
  return kOptions;
}

std::optional<std::string> cubin_mismatch(const Entry& entry) {
  const std::optional<CubinNote> note = read_cubin_note(entry.cubin);
  if (!note) return "the cubin has no compiler note";
  if (note->arch != entry.identity.arch) {
    return fmt::format("the cubin is for {}, its entry says {}", note->arch, entry.identity.arch);
  }
  if (note->compiler != entry.identity.nvrtc) {
    return fmt::format("the cubin is from compiler {}, its entry says {}", note->compiler,
                       entry.identity.nvrtc);
  }
  KernelInfo info;
  if (!read_metadata(entry.metadata, &info)) return "its metadata is not what this version writes";
  return std::nullopt;
}

Identity Context::State::identity_of(const KernelSpec& spec, std::string_view template_digest,
                                     std::string_view headers_digest) const {
  return {.kernel = spec.kernel,
          .key = spec.canonical,
          .template_digest = std::string(template_digest),
          .headers_digest = std::string(headers_digest),
          // The value too: whoever writes a manifest could give a key's name to another key's code.
          .options = fmt::format("{}{}{}", fmt::join(fixed_compile_options(), " "), kKeyValueOption,
                                 digest_of(spec.initializer)),
          .arch = arch,
          .nvrtc = {}};
}

const Result<std::shared_ptr<const Nvrtc>>& Context::State::nvrtc() const {
  std::call_once(nvrtc_once_, [this] {
    if (options.offline) {
      nvrtc_.emplace(Status(Code::kUnsupported, "NVRTC: not opened, the context is offline"));
    } else {
      nvrtc_.emplace(Nvrtc::open(options.nvrtc_path, trust_of(options)));
    }
    knows_nvrtc_ = true;
    if (!*nvrtc_ || !options.log) return;
    for (const std::string& refused : (**nvrtc_)->passed_over()) {
      options.log(LogLevel::kWarning, fmt::format("NVRTC: passed over {}", refused));
    }
  });
  return *nvrtc_;
}

std::string Context::State::nvrtc_version() const { return nvrtc() ? (*nvrtc())->version() : ""; }

std::string Context::State::deciding_version(const Identity& request) const {
  if (options.offline) return "";
  const bool decides = knows_nvrtc() || store->versions(request).size() > 1;
  return decides ? nvrtc_version() : "";
}

std::shared_ptr<Context::State::Slot> Context::State::slot_of(const Identity& identity) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Slot>& slot = table_[to_text(identity)];
  if (!slot) slot = std::make_shared<Slot>();
  return slot;
}

std::optional<std::string> Context::State::Judge::operator()(const Entry& entry) {
  if (std::optional<std::string> mismatch = cubin_mismatch(entry)) return mismatch;
  Status error = check_parameter(spec_, entry.cubin);
  if (error.ok() && device_) {
    KernelInfo info = info_of(entry.identity);
    read_metadata(entry.metadata, &info);
    bool blames_cubin = false;
    Result<Kernel> loaded =
        load_kernel(device_, spec_, std::move(info), entry.cubin, &blames_cubin);
    if (loaded) {
      kernel_ = *std::move(loaded);
      return std::nullopt;
    }
    error = std::move(loaded).error();
    if (!blames_cubin) {
      failure_ = std::move(error);
      return std::nullopt;
    }
  }
  if (error.ok()) return std::nullopt;
  std::string why(error.message());
  if (refusal_.ok()) refusal_ = std::move(error);
  return why;
}

Status Context::State::Judge::telling(Status error) {
  const bool cannot_compile =
      error.code() == Code::kNotCached || error.code() == Code::kUnsupported;
  return cannot_compile && !refusal_.ok() ? std::move(refusal_) : std::move(error);
}

Result<Kernel> Context::State::Judge::kernel_of(const Made& made) {
  if (!failure_.ok()) return std::move(failure_);
  if (kernel_) return *kernel_;
  return load_kernel(device_, spec_, made.compiled.info, made.cubin);
}

std::optional<Context::State::Made> Context::State::find(const Identity& identity,
                                                         Names::Moment since, Judge& judge) const {
  if (!store) return std::nullopt;
  Identity wanted = identity;
  if (wanted.nvrtc.empty()) wanted.nvrtc = deciding_version(identity);
  std::optional<StoredEntry> stored = store->lookup_since(since, wanted, std::ref(judge));
  if (!stored) return std::nullopt;
  Made made{.compiled = {.info = info_of(stored->entry.identity),
                         .source = Source::kDisk,
                         .path = std::move(stored->path)},
            .cubin = std::move(stored->entry.cubin)};
  read_metadata(stored->entry.metadata, &made.compiled.info);
  return made;
}

Result<Context::State::Made> Context::State::build(const KernelSpec& spec, const Held& held,
                                                   const Identity& identity) const {
  const Result<TemplateSource> source = held.source ? *held.source : find_template(spec.kernel, {});
  if (!source) return source.error().clone();
  CompileInput input{.path = source->path,
                     .source = source->text,
                     .headers = {source->files.begin(), source->files.end()},
                     .options = compile_options(spec, arch)};
  const auto start = std::chrono::steady_clock::now();
  Result<CompileOutput> output = (*nvrtc())->compile(input);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  if (!output) {
    return internal::key_error(output.error().code(),
                               fmt::format("{}: compile failed on {} (NVRTC {}): {}", spec.kernel,
                                           arch, identity.nvrtc, output.error().message()),
                               spec.canonical, output.error().log());
  }
  ++compiles_;
  Made made{.compiled = {.info = info_of(identity), .source = Source::kCompiled, .path = {}},
            .cubin = std::move(output->cubin)};
  made.compiled.info.compile_ms = elapsed.count();
  const std::string entry = fmt::format("entry function '{}'", spec.kernel);
  if (output->log.find(entry) == output->log.npos ||
      !read_resources(output->log, &made.compiled.info)) {
    return internal::key_error(
        Code::kCompileFailed,
        fmt::format("the compiler reports no kernel {} in {}; accepted: a template with extern "
                    "\"C\" __global__ void {}",
                    spec.kernel, source->path, spec.kernel),
        spec.canonical, output->log);
  }
  CUBINERY_RETURN_IF_ERROR(check_parameter(spec, made.cubin));
  return made;
}

Result<Context::State::Made> Context::State::make_once(const KernelSpec& spec, const Held& held,
                                                       WaitBudget* waits, Judge& judge) const {
  Identity identity = held.identity;
  identity.nvrtc = nvrtc_version();
  std::unique_ptr<MakeLock> lock;
  if (store) {
    lock = store->lock(identity, waits);
    // Whoever held the lock has usually made what we want.
    if (std::optional<Made> found = find(identity, store->now(), judge)) {
      ++disk_hits_;
      return std::move(*found);
    }
  }
  ++misses_;
  Result<Made> made = build(spec, held, identity);
  if (!made || !store) return made;
  const Entry entry{
      .identity = identity, .metadata = metadata_json(made->compiled.info), .cubin = made->cubin};
  // A failed write is logged and counted by the store, and is not the caller's problem.
  if (Result<std::string> path = store->publish(entry, std::ref(judge))) {
    made->compiled.path = std::move(*path);
  }
  return made;
}

Result<Context::State::Made> Context::State::make_missing(const KernelSpec& spec, const Held& held,
                                                          WaitBudget* waits, Judge& judge) const {
  if (!options.offline && nvrtc()) return make_once(spec, held, waits, judge);
  ++misses_;
  return options.offline ? not_cached(held.identity) : nvrtc().error().clone();
}

std::string Context::State::remedy(const Identity& identity) const {
  if (!store) return "the context has no cache on disk";
  if (embedded_digests(identity.kernel) == nullptr) {
    return "fill the cache by compile() in a context that is not offline";
  }
  std::string command = fmt::format("cubinery prewarm --arch {} {}", arch,
                                    shell_option("--cache-dir", store->options().dir));
  for (const std::string& dir : options.template_dirs) {
    command += " " + shell_option("--template-dir", dir);
  }
  return fmt::format("fill the cache with {} and --hf-config FILE or --manifest FILE", command);
}

Status Context::State::not_cached(const Identity& identity) const {
  Explanation explanation;
  explain_miss(identity, &explanation);
  std::string nearest;
  if (!explanation.differences.empty()) {
    nearest = fmt::format("; the nearest entry {}", difference_text(explanation.differences));
  } else if (!explanation.nearest_path.empty()) {
    nearest = fmt::format("; {} cannot be used, cubinery cache verify says why",
                          explanation.nearest_path);
  }
  return internal::key_error(
      Code::kNotCached,
      fmt::format("not in the cache and the context is offline: kernel {} for {}{}; {}; looked in "
                  "[{}{}{}]",
                  identity.kernel, arch, nearest, remedy(identity),
                  store ? store->options().dir : "", options.cache_layers.empty() ? "" : ", ",
                  fmt::join(options.cache_layers, ", ")),
      identity.key);
}

Result<TemplateSource> Context::State::template_of(const KernelSpec& spec) const {
  return find_template(spec.kernel, options.template_dirs, trust_of(options));
}

Result<Context::State::Held> Context::State::hold(const KernelSpec& spec) const {
  CUBINERY_RETURN_IF_ERROR(process.check());  // before any lock
  Held held;
  const EmbeddedDigests* embedded = embedded_digests(spec.kernel);
  if (embedded != nullptr && options.template_dirs.empty()) {
    held.identity = identity_of(spec, embedded->own, embedded->headers);
  } else {
    Result<TemplateSource> source = template_of(spec);
    if (!source) return std::move(source).error();
    held.identity = identity_of(spec, source->template_digest, source->headers_digest);
    held.source = *std::move(source);
  }
  held.slot = slot_of(held.identity);
  held.lock = std::unique_lock(held.slot->mutex);
  return held;
}

Result<std::optional<Context::State::Made>> Context::State::supply(const KernelSpec& spec,
                                                                   const Held& held, Need need,
                                                                   Judge& judge) const {
  Slot& slot = *held.slot;
  if (!slot.cubin.empty()) {
    ++memory_hits_;
    return std::optional<Made>({.compiled = *slot.compiled, .cubin = std::move(slot.cubin)});
  }
  // Who makes what is missing looks again, when nobody else makes it; a compiler is looked for when
  // there is nothing else.
  const bool looks_again = !need.may_make || (knows_nvrtc() && nvrtc());
  const Names::Moment since = looks_again ? Names::kAnyTime : need.since;
  if (std::optional<Made> found = find(held.identity, since, judge)) {
    ++disk_hits_;
    return found;
  }
  if (!need.may_make) return std::optional<Made>();
  Result<Made> made = make_missing(spec, held, need.waits, judge);
  if (!made) return judge.telling(std::move(made).error());
  return std::optional<Made>(*std::move(made));
}

Result<CompiledKernel> Context::State::compile(const KernelSpec& spec, WaitBudget* waits) const {
  Result<Held> held = hold(spec);
  if (!held) return std::move(held).error();
  Slot& slot = *held->slot;
  if (slot.compiled) {
    ++memory_hits_;
    CompiledKernel compiled = *slot.compiled;
    compiled.source = Source::kMemory;
    return compiled;
  }
  Judge judge(spec, nullptr);
  Result<std::optional<Made>> made = supply(spec, *held, {.since = now(), .waits = waits}, judge);
  if (!made) return std::move(made).error();
  slot.compiled = (*made)->compiled;
  if (slot.compiled->path.empty()) slot.cubin = std::move((*made)->cubin);
  return std::move((*made)->compiled);
}

Result<std::optional<Kernel>> Context::State::load(const KernelSpec& spec, Need need) const {
  if (!device) {
    return internal::key_error(Code::kUnsupported,
                               "a context with kNoDevice loads no kernels; use compile()",
                               spec.canonical);
  }
  Result<Held> held = hold(spec);
  if (!held) return std::move(held).error();
  Slot& slot = *held->slot;
  if (slot.kernel) {
    ++memory_hits_;
    return slot.kernel;
  }
  Judge judge(spec, device);
  Result<std::optional<Made>> made = supply(spec, *held, need, judge);
  if (!made) return std::move(made).error();
  if (!*made) return std::optional<Kernel>();
  Result<Kernel> kernel = judge.kernel_of(**made);
  if (!kernel) return std::move(kernel).error();
  slot.compiled = std::move((*made)->compiled);
  slot.kernel = *std::move(kernel);
  return slot.kernel;
}

Result<Kernel> Context::State::get(const KernelSpec& spec, Names::Moment since,
                                   WaitBudget* waits) const {
  Result<std::optional<Kernel>> kernel = load(spec, {.since = since, .waits = waits});
  if (!kernel) return std::move(kernel).error();
  return **std::move(kernel);
}

Result<std::optional<Kernel>> Context::State::get_cached(const KernelSpec& spec) const {
  return load(spec, {.may_make = false});
}

void Context::State::explain_miss(const Identity& identity, Explanation* explanation) const {
  if (!store) return;
  bool found = false;
  for (KnownEntry& known : store->known(identity.kernel)) {
    if (identity.nvrtc.empty()) known.identity.nvrtc.clear();  // any compiler is accepted
    std::vector<std::string> changes = differences(known.identity, identity);
    if (found && changes.size() >= explanation->differences.size()) continue;
    found = true;
    explanation->nearest_path = std::move(known.path);
    explanation->differences = std::move(changes);
  }
}

Result<Explanation> Context::State::explain(const KernelSpec& spec) const {
  CUBINERY_RETURN_IF_ERROR(process.check());
  Result<TemplateSource> source = template_of(spec);
  if (!source) return std::move(source).error();
  Identity identity = identity_of(spec, source->template_digest, source->headers_digest);
  Explanation explanation;
  explanation.source_path = source->origin;
  explanation.source = source->text;
  explanation.options = compile_options(spec, arch);
  Judge judge(spec, nullptr);
  if (std::optional<Made> found = find(identity, now(), judge)) {
    if (!options.offline) identity.nvrtc = found->compiled.info.nvrtc;
    explanation.cached = true;
    explanation.path = std::move(found->compiled.path);
    explanation.info = std::move(found->compiled.info);
  } else {
    identity.nvrtc = nvrtc_version();
    explanation.path = store ? store->path_of(identity) : "";
    explanation.info = info_of(identity);
    explain_miss(identity, &explanation);
  }
  explanation.identity = to_text(identity);
  return explanation;
}

Names::Moment Context::State::now() const { return store ? store->now() : Names::kAnyTime; }

CacheStats Context::State::stats() const {
  return {.memory_hits = memory_hits_,
          .disk_hits = disk_hits_,
          .misses = misses_,
          .compiles = compiles_,
          .damaged = store ? store->damaged() : 0,
          .failed_writes = store ? store->failed_writes() : 0};
}

}  // namespace cubinery
