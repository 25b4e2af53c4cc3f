#include "runtime/operator/tuning_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cache/paths.h"
#include "codegen/bundle.h"
#include "codegen/identity.h"
#include "runtime/jit/context_state.h"
#include "tuner/choose/embedded.h"

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

// The space must outlive the question.
Question question_of(const Context& context, const TuningSpace& space, const GpuIdentity& gpu) {
  return {.op = space.op,
          .fixed = space.fixed,
          .outline = space.outline,
          .gpu = gpu,
          .toolchain = toolchain_of(context, space),
          .usable = [&space, gpu](const std::vector<TunedValue>& values) {
            const std::size_t index = index_of(space, values);
            return index < space.configurations.size() &&
                   // With the same mark on fields that change bits.
                   space.configurations[index].values == values &&
                   fits(space.configurations[index], gpu);
          }};
}

// In the order of precedence.
std::vector<TuningResult> results_of(const Context::State& state, const WantedResults& wanted) {
  if (!paths::is_kernel_name(wanted.op)) return {};  // files are named after it
  const auto& log = state.options.log;
  std::vector<TuningResult> results;
  if (state.store) {
    const StoreOptions& options = state.store->options();
    std::vector<std::string> dirs{options.dir};
    dirs.insert(dirs.end(), options.layers.begin(), options.layers.end());
    for (const std::string& dir : dirs) {
      if (dir.empty()) continue;
      const TuningFiles::Results file =
          state.tuning_files.read(dir, wanted, options.trust_shared_dirs, log);
      results.insert(results.end(), file->begin(), file->end());
    }
  }
  std::vector<TuningResult> inside = embedded_results(
      [&](std::string_view op, std::string_view fixed) { return wanted.includes(op, fixed); });
  results.insert(results.end(), std::make_move_iterator(inside.begin()),
                 std::make_move_iterator(inside.end()));
  return results;
}

}  // namespace

Result<GpuIdentity> gpu_identity(const Context& context) {
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

std::string templates_digest(std::vector<std::string> kernels,
                             const std::vector<std::string>& template_dirs) {
  std::sort(kernels.begin(), kernels.end());
  kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
  std::string digests;
  for (const std::string& kernel : kernels) {
    const Result<TemplateSource> source = find_template(kernel, template_dirs);
    // One that is not there compiles to nothing: as good a digest as any.
    digests += source ? kernel_digest(source->files, kernel) : fmt::format("no {}", kernel);
  }
  return digest_of(digests);
}

Toolchain toolchain_of(const Context& context, std::vector<std::string> kernels) {
  const auto& nvrtc = context.state().nvrtc;
  return {.nvrtc = nvrtc ? (*nvrtc)->version() : "",
          .templates = templates_digest(std::move(kernels), context.state().options.template_dirs)};
}

Toolchain toolchain_of(const Context& context, const TuningSpace& space) {
  std::vector<std::string> kernels;
  for (const Configuration& configuration : space.configurations) {
    for (const KernelSpec& spec : configuration.kernels) kernels.push_back(spec.kernel);
  }
  return toolchain_of(context, std::move(kernels));
}

std::string tuning_directory(const Context& context) {
  const Store* store = context.state().store.get();
  return store == nullptr ? "" : store->options().dir + "/tuning";
}

std::vector<TuningResult> tuning_results(const Context& context, std::string_view op) {
  return results_of(context.state(), {.op = std::string(op)});
}

std::vector<TuningResult> tuning_results(const Context& context, const Question& question) {
  return results_of(context.state(),
                    {.op = question.op, .fixed = question.fixed, .outline = question.outline});
}

Choice choose(const Context& context, const TuningSpace& space, const Shape& features,
              std::size_t otherwise) {
  const Result<GpuIdentity> gpu = gpu_identity(context);
  if (!gpu) return {.configuration = otherwise, .why = std::string(gpu.error().message())};
  const Question question = question_of(context, space, *gpu);
  const std::vector<TuningResult> results = tuning_results(context, question);
  const Answers answers(question, results);
  std::optional<Answers::Answer> answer = answers.find(features);
  if (!answer) return {.configuration = otherwise, .why = answers.unanswered()};
  return {.configuration = index_of(space, answer->result->configuration),
          .rung = answer->rung,
          .why = std::move(answer->why)};
}

}  // namespace cubinery
