// From a key to a cubin: memory, disk, compiler, in this order.
#include "runtime/jit/context_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <functional>

#include "cache/cubin_note.h"
#include "codegen/bundle.h"
#include "codegen/source_name.h"
#include "runtime/jit/disassembly.h"
#include "runtime/jit/kernel_info.h"
#include "runtime/jit/kernel_state.h"
#include "runtime/jit/kernel_symbol.h"
#include "runtime/jit/nvcc.h"
#include "runtime/jit/nvrtc.h"
#include "runtime/jit/options_text.h"

namespace cubinery {
namespace {

// Why launches could not pass their arguments to the function of this name in the cubin.
Status check_parameter(const Recipe& recipe, const std::string& symbol, std::string_view cubin) {
  const std::optional<KernelParameters> parameters = read_parameters(cubin, symbol);
  const Identity& identity = recipe.identity;
  if (!recipe.param_bytes) {
    if (parameters) return {};
    return internal::key_error(Code::kCompileFailed,
                               fmt::format("the cubin has no kernel {}", symbol), identity.key);
  }
  if (!parameters) return {};
  if (parameters->count != 1) {
    return internal::key_error(
        Code::kCompileFailed,
        fmt::format("{} takes {} parameters; accepted: one, the struct Fields::Params",
                    identity.kernel, parameters->count),
        identity.key);
  }
  if (parameters->bytes == *recipe.param_bytes) return {};
  return internal::key_error(Code::kInvalidKey,
                             wrong_parameter(parameters->bytes, *recipe.param_bytes), identity.key);
}

// Entries of one text that are compared with what it includes; those of headers that are edited
// again and again are many.
constexpr std::size_t kMostClosures = 8;

KernelInfo info_of(const Identity& identity) {
  return {.kernel = identity.kernel,
          .canonical = identity.key,
          .arch = identity.arch,
          .nvrtc = identity.nvrtc,
          .log = {},
          .symbol = {}};
}

// Of what did not compile.
Status compile_failure(const CompileInput& input, const Identity& identity, const Status& error) {
  const std::string why = input.name.empty() ? "" : unknown_name(error.log());
  if (!why.empty()) {
    return internal::key_error(
        error.code(),
        fmt::format("{} has no one __global__ function {}: {}; accepted: the name of one, with its "
                    "namespaces, and with arguments where it is a template",
                    input.path, input.name, why),
        identity.key, error.log());
  }
  return internal::key_error(
      error.code(),
      fmt::format("{}: compile failed on {} ({} {}): {}", identity.kernel, identity.arch,
                  compiler_text(compiler_in_key(identity.key)), identity.nvrtc, error.message()),
      identity.key, error.log());
}

// Of what has no kernel of the name.
Status no_such_kernel(const CompileInput& input, const Identity& identity, std::string_view log) {
  return internal::key_error(
      Code::kCompileFailed,
      input.name.empty()
          ? fmt::format("the compiler reports no kernel {0} in {1}; accepted: a template with "
                        "extern \"C\" __global__ void {0}",
                        identity.kernel, input.path)
          : fmt::format("the compiler reports no kernel {} in {}; accepted: a __global__ function",
                        input.name, input.path),
      identity.key, log);
}

Status check_spills(const KernelInfo& info, std::string_view log) {
  if (info.spill_store_bytes == 0 && info.spill_load_bytes == 0) return {};
  return internal::key_error(
      Code::kCompileFailed,
      fmt::format("{} spills registers, {} bytes of stores and {} of loads with {} registers, and "
                  "allow_spills is false; accepted: a kernel without spills",
                  info.kernel, info.spill_store_bytes, info.spill_load_bytes, info.registers),
      info.canonical, log);
}

// As cubin_mismatch(); sets what the metadata has of `info`.
std::optional<std::string> mismatch_of(const Entry& entry, KernelInfo* info) {
  const Identity& identity = entry.identity;
  // nvcc's version has its host compiler's behind it, of which a cubin says nothing.
  const std::string_view version = compiler_in_key(identity.key) == Compiler::kNvcc
                                       ? toolkit_version_in_nvcc(identity.nvrtc)
                                       : identity.nvrtc;
  if (auto wrong = wrong_cubin(entry.cubin, identity.arch, version)) return wrong;
  if (!read_metadata(entry.metadata, info)) return "its metadata is not what this version writes";
  if (is_source_key(entry.identity.key) && info->symbol.empty()) {
    return "its metadata does not name the kernel";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> cubin_mismatch(const Entry& entry) {
  KernelInfo info;
  return mismatch_of(entry, &info);
}

Status Context::State::check_device(std::string_view key) const {
  if (device) return {};
  return internal::key_error(Code::kUnsupported,
                             "a context with kNoDevice loads no kernels; use compile()", key);
}

Result<Recipe> Context::State::recipe(const KernelSpec& spec, bool to_load) const {
  if (to_load) CUBINERY_RETURN_IF_ERROR(check_device(spec.canonical));
  CUBINERY_RETURN_IF_ERROR(process.check());
  return recipe_of(spec, options, arch);
}

Result<Recipe> Context::State::recipe(const KernelSource& source, bool to_load) const {
  if (to_load) CUBINERY_RETURN_IF_ERROR(check_device(source.name));
  CUBINERY_RETURN_IF_ERROR(process.check());
  if (!store) return recipe_of(source, *included, arch);
  return recipe_of(source, *included, arch, [this](const Identity& request) {
    std::vector<KnownClosure> known;
    for (const Entry& entry : store->with_any_headers(request, kMostClosures)) {
      known.push_back({entry.identity.headers_digest, questions_in(entry.metadata)});
    }
    return known;
  });
}

LazyCompiler::Opened Context::State::open(Compiler which) const {
  if (options.offline) {
    return Status(Code::kUnsupported,
                  fmt::format("{}: not opened, the context is offline", compiler_text(which)));
  }
  const int driver = device ? device->driver().version() : 0;
  if (which == Compiler::kNvcc) {
    Result<std::shared_ptr<const Nvcc>> nvcc =
        Nvcc::open(options.nvcc_path, trust_of(options), driver);
    if (!nvcc) return std::move(nvcc).error();
    return std::shared_ptr<const CubinCompiler>(*std::move(nvcc));
  }
  Result<std::shared_ptr<const Nvrtc>> nvrtc =
      Nvrtc::open(options.nvrtc_path, trust_of(options), driver);
  if (!nvrtc) return std::move(nvrtc).error();
  for (const std::string& refused : (*nvrtc)->passed_over()) {
    if (options.log) {
      options.log(LogLevel::kWarning, fmt::format("NVRTC: passed over {}", refused));
    }
  }
  return std::shared_ptr<const CubinCompiler>(*std::move(nvrtc));
}

const LazyCompiler::Opened& Context::State::compiler(Compiler which) const {
  return lazy(which).get([&] { return open(which); });
}

std::string Context::State::version_of(Compiler which) const {
  const LazyCompiler::Opened& opened = compiler(which);
  return opened ? (*opened)->version() : "";
}

std::string Context::State::deciding_version(const Identity& request) const {
  if (options.offline) return "";
  const Compiler which = compiler_in_key(request.key);
  const bool decides = knows(which) || store->versions(request).size() > 1;
  return decides ? version_of(which) : "";
}

std::shared_ptr<Context::State::Slot> Context::State::slot_of(const Identity& identity) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Slot>& slot = table_[to_text(identity)];
  if (!slot) slot = std::make_shared<Slot>();
  return slot;
}

std::optional<std::string> Context::State::Judge::operator()(const Entry& entry) {
  info_ = info_of(entry.identity);
  if (std::optional<std::string> mismatch = mismatch_of(entry, &info_)) return mismatch;
  Status error =
      check_parameter(recipe_, recipe_.symbol.empty() ? info_.symbol : recipe_.symbol, entry.cubin);
  if (error.ok() && device_) {
    bool blames_cubin = false;
    Result<Kernel> loaded = load_kernel(device_, recipe_, info_, entry.cubin, &blames_cubin);
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
  return load_kernel(device_, recipe_, made.compiled.info, made.cubin);
}

std::optional<Context::State::Made> Context::State::find(const Identity& identity,
                                                         Names::Moment since, Judge& judge) const {
  if (!store) return std::nullopt;
  Identity wanted = identity;
  if (wanted.nvrtc.empty()) wanted.nvrtc = deciding_version(identity);
  std::optional<StoredEntry> stored = store->lookup_since(since, wanted, std::ref(judge));
  if (!stored) return std::nullopt;
  return Made{
      .compiled = {.info = judge.info(), .source = Source::kDisk, .path = std::move(stored->path)},
      .cubin = std::move(stored->entry.cubin)};
}

Result<Context::State::Made> Context::State::build(const Recipe& recipe,
                                                   const Identity& identity) const {
  Result<CompileInput> input = recipe.input();
  if (!input) return std::move(input).error();
  const auto start = std::chrono::steady_clock::now();
  Result<CompileOutput> output = (*compiler(compiler_in_key(identity.key)))->compile(*input);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  if (!output) return compile_failure(*input, identity, output.error());
  ++compiles_;
  Made made{.compiled = {.info = info_of(identity), .source = Source::kCompiled, .path = {}},
            .cubin = std::move(output->cubin),
            .questions = std::move(input->questions)};
  KernelInfo& info = made.compiled.info;
  info.compile_ms = elapsed.count();
  info.symbol = std::move(output->symbol);
  if (recipe.symbol.empty() && info.symbol.empty()) {
    Result<std::string> only = symbol_of(made.cubin, "");
    if (!only) {
      return internal::key_error(only.error().code(),
                                 fmt::format("{}: {}", input->path, only.error().message()),
                                 identity.key, output->log);
    }
    info.symbol = *std::move(only);
  }
  const std::string& symbol = recipe.symbol.empty() ? info.symbol : recipe.symbol;
  // A text may have other kernels beside it.
  const std::string log =
      recipe.symbol.empty() ? log_of_kernel(output->log, symbol) : std::move(output->log);
  if (!reports_kernel(log, symbol) || !read_resources(log, &info)) {
    return no_such_kernel(*input, identity, log);
  }
  if (!recipe.allow_spills) CUBINERY_RETURN_IF_ERROR(check_spills(info, log));
  CUBINERY_RETURN_IF_ERROR(check_parameter(recipe, symbol, made.cubin));
  return made;
}

Result<Context::State::Made> Context::State::make_once(const Recipe& recipe, WaitBudget* waits,
                                                       Judge& judge) const {
  Identity identity = recipe.identity;
  identity.nvrtc = version_of(compiler_in_key(identity.key));
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
  Result<Made> made = build(recipe, identity);
  if (!made || !store) return made;
  const Entry entry{.identity = identity,
                    .metadata = metadata_json(made->compiled.info, std::move(made->questions)),
                    .cubin = made->cubin};
  // A failed write is logged and counted by the store, and is not the caller's problem.
  if (Result<std::string> path = store->publish(entry, std::ref(judge))) {
    made->compiled.path = std::move(*path);
  }
  return made;
}

Result<Context::State::Made> Context::State::make_missing(const Recipe& recipe, WaitBudget* waits,
                                                          Judge& judge) const {
  const Compiler which = compiler_in_key(recipe.identity.key);
  if (!options.offline && compiler(which)) return make_once(recipe, waits, judge);
  ++misses_;
  return options.offline ? not_cached(recipe.identity) : compiler(which).error().clone();
}

std::string Context::State::remedy(const Identity& identity) const {
  if (!store) return "the context has no cache on disk";
  if (is_source_key(identity.key)) {
    return "fill the cache by compile() of the same source, options and includes in a context that "
           "is not offline, or give a layer that has it";
  }
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
    const bool is_text = is_source_key(identity.key);
    nearest = fmt::format("; the nearest entry {}",
                          is_text ? source_difference_text(explanation.differences)
                                  : difference_text(explanation.differences));
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

Result<Context::State::Held> Context::State::hold(const Identity& identity) const {
  CUBINERY_RETURN_IF_ERROR(process.check());  // before any lock
  Held held;
  held.slot = slot_of(identity);
  held.lock = std::unique_lock(held.slot->mutex);
  return held;
}

Result<std::optional<Context::State::Made>> Context::State::supply(const Recipe& recipe,
                                                                   const Held& held, Need need,
                                                                   Judge& judge) const {
  Slot& slot = *held.slot;
  if (!slot.cubin.empty()) {
    ++memory_hits_;
    return std::optional<Made>({.compiled = *slot.compiled, .cubin = std::move(slot.cubin)});
  }
  // Who makes what is missing looks again, when nobody else makes it; a compiler is looked for when
  // there is nothing else.
  const Compiler which = compiler_in_key(recipe.identity.key);
  const bool looks_again = !need.may_make || (knows(which) && compiler(which));
  const Names::Moment since = looks_again ? Names::kAnyTime : need.since;
  if (std::optional<Made> found = find(recipe.identity, since, judge)) {
    ++disk_hits_;
    return found;
  }
  if (!need.may_make) return std::optional<Made>();
  Result<Made> made = make_missing(recipe, need.waits, judge);
  if (!made) return judge.telling(std::move(made).error());
  return std::optional<Made>(*std::move(made));
}

Result<CompiledKernel> Context::State::compile(const Recipe& recipe, WaitBudget* waits) const {
  Result<Held> held = hold(recipe.identity);
  if (!held) return std::move(held).error();
  Slot& slot = *held->slot;
  if (slot.compiled) {
    ++memory_hits_;
    CompiledKernel compiled = *slot.compiled;
    compiled.source = Source::kMemory;
    return compiled;
  }
  Judge judge(recipe, nullptr);
  Result<std::optional<Made>> made = supply(recipe, *held, {.since = now(), .waits = waits}, judge);
  if (!made) return std::move(made).error();
  slot.compiled = (*made)->compiled;
  if (slot.compiled->path.empty()) slot.cubin = std::move((*made)->cubin);
  return std::move((*made)->compiled);
}

Result<std::optional<Kernel>> Context::State::load(const Recipe& recipe, Need need) const {
  CUBINERY_RETURN_IF_ERROR(check_device(recipe.identity.key));
  Result<Held> held = hold(recipe.identity);
  if (!held) return std::move(held).error();
  Slot& slot = *held->slot;
  if (slot.kernel) {
    ++memory_hits_;
    return slot.kernel;
  }
  Judge judge(recipe, device);
  Result<std::optional<Made>> made = supply(recipe, *held, need, judge);
  if (!made) return std::move(made).error();
  if (!*made) return std::optional<Kernel>();
  Result<Kernel> kernel = judge.kernel_of(**made);
  if (!kernel) return std::move(kernel).error();
  slot.compiled = std::move((*made)->compiled);
  slot.kernel = *std::move(kernel);
  return slot.kernel;
}

Result<Kernel> Context::State::get(const Recipe& recipe, Names::Moment since,
                                   WaitBudget* waits) const {
  Result<std::optional<Kernel>> kernel = load(recipe, {.since = since, .waits = waits});
  if (!kernel) return std::move(kernel).error();
  return **std::move(kernel);
}

Result<std::optional<Kernel>> Context::State::get_cached(const Recipe& recipe) const {
  return load(recipe, {.may_make = false});
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

Result<Explanation> Context::State::explain(const Recipe& recipe) const {
  Result<CompileInput> input = recipe.input();
  if (!input) return std::move(input).error();
  Identity identity = recipe.identity;
  const Compiler which = compiler_in_key(identity.key);
  Explanation explanation;
  explanation.source_path = recipe.origin;
  explanation.source = std::move(input->source);
  explanation.options = std::move(input->options);
  Judge judge(recipe, nullptr);
  if (std::optional<Made> found = find(identity, now(), judge)) {
    if (!options.offline) identity.nvrtc = found->compiled.info.nvrtc;
    explanation.cached = true;
    explanation.path = std::move(found->compiled.path);
    explanation.info = std::move(found->compiled.info);
  } else {
    identity.nvrtc = version_of(which);
    explanation.path = store ? store->path_of(identity) : "";
    explanation.info = info_of(identity);
    explain_miss(identity, &explanation);
  }
  if (which == Compiler::kNvrtc) {
    explanation.options = options_given(std::move(explanation.options), explanation.info.nvrtc);
  }
  explanation.identity = to_text(identity);
  return explanation;
}

Result<std::string> Context::State::listing(const Recipe& recipe, Listing form) const {
  if (form == Listing::kPtx) {
    Identity identity = recipe.identity;
    const LazyCompiler::Opened& opened = compiler(compiler_in_key(identity.key));
    if (!opened) return opened.error().clone();
    identity.nvrtc = (*opened)->version();
    Result<CompileInput> input = recipe.input();
    if (!input) return std::move(input).error();
    input->wants_ptx = true;
    Result<CompileOutput> output = (*opened)->compile(*input);
    if (!output) return compile_failure(*input, identity, output.error());
    return std::move(output->ptx);
  }
  Judge judge(recipe, nullptr);
  std::optional<Made> found = find(recipe.identity, now(), judge);
  if (!found) {
    Result<Made> made = make_missing(recipe, nullptr, judge);
    if (!made) return judge.telling(std::move(made).error());
    found = *std::move(made);
  }
  return disassembly(found->cubin, options.nvcc_path, trust_of(options));
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
