#include "runtime/operator/tuning_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "cache/paths.h"
#include "codegen/bundle.h"
#include "codegen/identity.h"
#include "results/embedded.h"
#include "results/space.h"
#include "runtime/jit/context_state.h"
#include "runtime/jit/recipe.h"
#include "runtime/jit/template_source.h"

namespace cubinery {
namespace {

// CUDA appends it to the name of a part of a GPU: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
std::string mig_profile(std::string_view name) {
  constexpr std::string_view kMark = " MIG ";
  const std::size_t at = name.find(kMark);
  return at == name.npos ? "" : std::string(name.substr(at + kMark.size()));
}

bool fits(const Configuration& configuration, const GpuIdentity& gpu) {
  return std::all_of(
      configuration.kernels.begin(), configuration.kernels.end(),
      [&](const KernelSpec& kernel) { return kernel.shared_bytes <= gpu.shared_bytes_per_sm; });
}

// What stands for a text among the names of templates, before its digest.
constexpr std::string_view kText = "text ";

// Of all but the options, which are what a configuration chooses.
std::string text_digest(const Context& context, const KernelSource& source) {
  const Result<Recipe> recipe = recipe_of(source, *context.state().included, context.arch());
  // One that cannot be read compiles to nothing: as good a digest as any.
  if (!recipe) return digest_of(recipe.error().message());
  const Identity& identity = recipe->identity;
  return digest_of(identity.key + identity.template_digest + identity.headers_digest);
}

// XXH3-128 over the code of these templates, found in these folders first.
std::string templates_digest(std::vector<std::string> kernels,
                             const std::vector<std::string>& template_dirs, const Trust& trust) {
  std::sort(kernels.begin(), kernels.end());
  kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
  std::string digests;
  for (const std::string& kernel : kernels) {
    if (kernel.starts_with(kText)) {
      digests += kernel;
      continue;
    }
    const Result<std::string> digest = find_code_digest(kernel, template_dirs, trust);
    // One that is not there compiles to nothing: as good a digest as any.
    digests += digest ? *digest : fmt::format("no {}", kernel);
  }
  return digest_of(digests);
}

std::map<std::string, std::string, std::less<>> templates_of(
    const PathKernels& paths, const std::vector<std::string>& template_dirs, const Trust& trust) {
  std::map<std::string, std::string, std::less<>> templates;
  for (const auto& [path, kernels] : paths) {
    templates.emplace(path, templates_digest(kernels, template_dirs, trust));
  }
  return templates;
}

// In the order of precedence.
std::vector<TuningResult> results_of(const Context::State& state, const Wanted& wanted) {
  if (!paths::is_kernel_name(wanted.op)) return {};  // files are named after it
  if (!state.process.is_current()) return {};        // no lock can be taken
  const auto& log = state.options.log;
  std::vector<TuningResult> results;
  if (state.store) {
    const StoreOptions& options = state.store->options();
    std::vector<std::string> dirs{options.dir};
    dirs.insert(dirs.end(), options.layers.begin(), options.layers.end());
    for (const std::string& dir : dirs) {
      if (dir.empty()) continue;
      const TuningFiles::Results file = state.tuning_files.read(dir, wanted, options.trust, log);
      results.insert(results.end(), file->begin(), file->end());
    }
  }
  std::vector<TuningResult> inside = embedded_results(
      [&](std::string_view op, std::string_view problem) { return wanted.includes(op, problem); });
  results.insert(results.end(), std::make_move_iterator(inside.begin()),
                 std::make_move_iterator(inside.end()));
  return results;
}

std::map<std::string, std::string, std::less<>> templates_of(const Context& context,
                                                             const PathKernels& paths) {
  return templates_of(paths, context.state().options.template_dirs, trust_of(context));
}

// Whether the compiler's version can decide which of the results is taken.
bool has_several_versions(const std::vector<TuningResult>& results, std::string_view arch) {
  const std::string* first = nullptr;
  for (const TuningResult& result : results) {
    if (result.setting.gpu.arch != arch) continue;
    if (first == nullptr) first = &result.setting.nvrtc;
    if (*first != result.setting.nvrtc) return true;
  }
  return false;
}

// What it takes to tell stale results.  A compiler that nobody has needed yet is not looked for
// where all results are of one: they are stale together, or none is.
Toolchain toolchain_for(const Context& context, const PathKernels& paths,
                        const std::vector<TuningResult>& results) {
  if (context.state().knows(Compiler::kNvrtc) || has_several_versions(results, context.arch())) {
    return toolchain_of(context, paths);
  }
  return {.nvrtc = {}, .templates = templates_of(context, paths)};
}

}  // namespace

Result<GpuIdentity> gpu_identity(const Context& context) {
  CUBINERY_RETURN_IF_ERROR(context.state().process.check());
  const Device* device = context.state().device.get();
  if (device == nullptr) {
    return Status(Code::kUnsupported, "tuning: a context with kNoDevice has no GPU");
  }
  int l2_bytes = 0;
  int shared_bytes = 0;
  CUBINERY_RETURN_IF_ERROR(device->attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2_bytes));
  CUBINERY_RETURN_IF_ERROR(
      device->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &shared_bytes));
  return GpuIdentity{.arch = context.arch(),
                     .capability = fmt::format("{}.{}", device->major(), device->minor()),
                     .sm_count = device->sm_count(),
                     .l2_bytes = l2_bytes,
                     .shared_bytes_per_sm = shared_bytes,
                     .mig = mig_profile(device->name()),
                     .name = device->name()};
}

Arch arch_of(const Context& context) { return parse_arch(context.arch()).value_or(Arch{}); }

Result<Arch> check_arch(std::string_view op, std::string_view name) {
  if (const std::optional<Arch> arch = parse_arch(name)) return *arch;
  return Status(Code::kInvalidArgument, fmt::format("{}: arch = {}; accepted: {}", op, name,
                                                    fmt::join(known_architectures(), ", ")));
}

Target target_of(const Context& context) {
  const Result<GpuIdentity> gpu = gpu_identity(context);
  if (gpu) return target_of(arch_of(context), *gpu);
  // Launches take their geometry from it.
  Target target = typical_target(arch_of(context));
  if (context.sm_count() > 0) target.sm_count = context.sm_count();
  return target;
}

const std::vector<std::string>& path_options(const Context& context) {
  return context.state().options.paths;
}

Trust trust_of(const Context& context) { return trust_of(context.state().options); }

PathKernels path_kernels(const TuningSpace& space) {
  PathKernels paths;
  for (const Configuration& configuration : space.configurations) {
    std::vector<std::string>& kernels = paths[std::string(path_of(configuration.values))];
    for (const KernelSpec& spec : configuration.kernels) kernels.push_back(spec.kernel);
  }
  return paths;
}

PathKernels path_kernels(const Context& context, const TuningSpace& space) {
  PathKernels paths = path_kernels(space);
  std::vector<const KernelSource*> seen;
  for (const Configuration& configuration : space.configurations) {
    for (const KernelSource& source : configuration.sources) {
      const auto is_same = [&](const KernelSource* other) {
        return other->name == source.name && other->source == source.source &&
               other->includes == source.includes;
      };
      if (std::any_of(seen.begin(), seen.end(), is_same)) continue;
      seen.push_back(&source);
      paths[std::string(path_of(configuration.values))].push_back(
          fmt::format("{}{}", kText, text_digest(context, source)));
    }
  }
  return paths;
}

Toolchain toolchain_of(const Context& context, const PathKernels& paths) {
  const Result<std::string> nvrtc = context.nvrtc_version();
  return {.nvrtc = nvrtc ? *nvrtc : "", .templates = templates_of(context, paths)};
}

std::string tuning_directory(const Context& context) {
  const Store* store = context.state().store.get();
  return store == nullptr ? "" : store->options().dir + "/tuning";
}

std::vector<TuningResult> tuning_results(const Context& context, const Wanted& wanted) {
  return results_of(context.state(), wanted);
}

Ladder ladder_of(const Context& context, Wanted wanted, const PathKernels& paths) {
  std::vector<TuningResult> results;
  if (Result<GpuIdentity> gpu = gpu_identity(context)) {
    wanted.gpu = *std::move(gpu);
    results = tuning_results(context, wanted);
    // Read for nothing where there are none.
    if (!results.empty()) wanted.toolchain = toolchain_for(context, paths, results);
  }
  return {std::move(wanted), std::move(results)};
}

KnownResults known_results_inside(std::string_view op, const PathKernels& paths) {
  return {.results = embedded_results(
              [&](std::string_view its_op, std::string_view) { return its_op == op; }),
          .templates = templates_of(paths, {}, {})};
}

KnownResults known_results_of(const Context& context, std::string_view op,
                              const PathKernels& paths) {
  return {.results = tuning_results(context, {.op = std::string(op)}),
          .templates = templates_of(context, paths)};
}

std::string without_results(const Context& context, std::string_view op, const Status& error) {
  std::string why = fmt::format("the kernels that tuning chose cannot be had: {}", error.message());
  const auto& log = context.state().options.log;
  if (log) log(LogLevel::kWarning, fmt::format("{}: {}; taking those of the cost model", op, why));
  return why;
}

Choice choose(const Context& context, const TuningSpace& space, const Shape& features,
              std::size_t otherwise) {
  const auto chosen = [&](std::size_t index, Rung rung, std::string why) -> Choice {
    if (index >= space.configurations.size()) return {.why = std::move(why), .index = index};
    const std::vector<TunedValue>& values = space.configurations[index].values;
    return {.path = std::string(path_of(values)),
            .configuration = to_text(values),
            .rung = rung,
            .why = std::move(why),
            .index = index};
  };
  const Result<GpuIdentity> gpu = gpu_identity(context);
  if (!gpu) return chosen(otherwise, Rung::kDefault, std::string(gpu.error().message()));
  Wanted wanted = wanted_of(space);
  wanted.usable = [&](const std::vector<TunedValue>& values) {
    const std::size_t index = index_of(space, values);
    return index < space.configurations.size() &&
           // With the same mark on fields that change bits.
           space.configurations[index].values == values && fits(space.configurations[index], *gpu);
  };
  const Ladder ladder = ladder_of(context, std::move(wanted), path_kernels(context, space));
  const std::optional<Ladder::Nearest> nearest = ladder.nearest(features);
  if (!nearest) return chosen(otherwise, Rung::kDefault, ladder.why_none());
  return chosen(index_of(space, ladder.configuration(*nearest)), nearest->rung,
                ladder.why(*nearest));
}

}  // namespace cubinery
