#include "tuner/measure/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "codegen/arch.h"
#include "runtime/jit/on_threads.h"

namespace cubinery {
namespace {

constexpr unsigned kMaxThreads = 1024;  // of a block, on every GPU

std::string first_line(std::string_view text) {
  const std::size_t start = std::min(text.size(), text.find_first_not_of("\r\n"));
  text.remove_prefix(start);
  return std::string(text.substr(0, text.find_first_of("\r\n")));
}

// A compiler's log names the error in the line that has "error" in it.
std::string error_line(const Status& status) {
  const std::string_view log = status.log();
  const std::size_t error = log.find("error");
  if (error == log.npos) return std::string(status.message());
  const std::size_t newline = log.rfind('\n', error);
  return first_line(log.substr(newline == log.npos ? 0 : newline + 1));
}

MeasuredKernel measured_kernel(const std::string& name, unsigned shared_bytes,
                               const KernelInfo& info) {
  return {.kernel = name,
          .registers = info.registers,
          .shared_bytes = info.static_shared_bytes + static_cast<int>(shared_bytes),
          .spill_bytes = info.spill_store_bytes + info.spill_load_bytes,
          .compile_ms = info.compile_ms};
}

std::optional<Rejection> too_much_shared(const std::string& name, unsigned dynamic_bytes,
                                         int static_bytes, const Target& target) {
  const int bytes = static_cast<int>(dynamic_bytes) + static_bytes;
  if (bytes <= target.shared_bytes_per_block) return std::nullopt;
  return Rejection{Verdict::kConstraints,
                   fmt::format("{}: {} bytes of shared memory, of which a block has {}", name,
                               bytes, target.shared_bytes_per_block)};
}

}  // namespace

std::optional<Rejection> why_impossible(const KernelSpec& spec, const Target& target) {
  if (spec.threads < 1 || spec.threads > kMaxThreads) {
    return Rejection{Verdict::kConstraints, fmt::format("{}: {} threads, of which a block has {}",
                                                        spec.kernel, spec.threads, kMaxThreads)};
  }
  return too_much_shared(spec.kernel, spec.shared_bytes, 0, target);
}

std::optional<Rejection> why_rejected(const KernelSpec& spec, const KernelInfo& info,
                                      const Target& target) {
  if (info.spill_store_bytes + info.spill_load_bytes > 0) {
    return Rejection{Verdict::kSpills, fmt::format("{}: spills {} bytes and loads {}", spec.kernel,
                                                   info.spill_store_bytes, info.spill_load_bytes)};
  }
  if (!info.log.empty()) {
    return Rejection{Verdict::kSpills, fmt::format("{}: {}", spec.kernel, first_line(info.log))};
  }
  // Registers are handed out to threads by the eight, threads by the warp.
  const int registers =
      (info.registers + 7) / 8 * 8 * static_cast<int>((spec.threads + 31) / 32 * 32);
  if (registers > target.registers_per_sm) {
    return Rejection{
        Verdict::kConstraints,
        fmt::format("{}: {} registers in {} threads, {} in all, of which a block has {}",
                    spec.kernel, info.registers, spec.threads, registers, target.registers_per_sm)};
  }
  return too_much_shared(spec.kernel, spec.shared_bytes, info.static_shared_bytes, target);
}

// Of an architecture that is not known a block has no shared memory.
TuneCandidates::TuneCandidates(const Context& context, const TuningSpace& space,
                               const GpuIdentity& gpu)
    : context_(context), space_(space), all_(space.configurations.size()) {
  if (const std::optional<Arch> arch = parse_arch(gpu.arch)) target_ = target_of(*arch, gpu);
}

// What compiling comes to: a rejection in the candidate, nothing in it, or an error that ends all.
Status TuneCandidates::take(const Result<CompiledKernel>& compiled, const std::string& name,
                            unsigned shared_bytes, TuneCandidate* candidate) {
  if (compiled) {
    candidate->kernels.push_back(measured_kernel(name, shared_bytes, compiled->info));
    return {};
  }
  const Code code = compiled.error().code();
  if (code == Code::kUnsupported || code == Code::kIo) return compiled.error().clone();
  candidate->rejection = Rejection{Verdict::kCompile, error_line(compiled.error())};
  return {};
}

Status TuneCandidates::make_known(std::size_t configuration) {
  TuneCandidate candidate;
  candidate.is_known = true;
  const auto& [values, kernels, sources] = space_.configurations[configuration];
  for (const KernelSpec& spec : kernels) {
    candidate.rejection = why_impossible(spec, target_);
    if (candidate.rejection) break;
  }
  for (const KernelSpec& spec : kernels) {
    if (candidate.rejection) break;
    const Result<CompiledKernel> compiled = context_.compile(spec);
    CUBINERY_RETURN_IF_ERROR(take(compiled, spec.kernel, spec.shared_bytes, &candidate));
    if (compiled) candidate.rejection = why_rejected(spec, compiled->info, target_);
  }
  // A text says itself whether it may spill, and each launch how many threads it has.
  for (const KernelSource& source : sources) {
    if (candidate.rejection) break;
    const Result<CompiledKernel> compiled = context_.compile(source);
    CUBINERY_RETURN_IF_ERROR(take(compiled, source.name, 0, &candidate));
    if (!compiled) continue;
    candidate.rejection =
        too_much_shared(source.name, 0, compiled->info.static_shared_bytes, target_);
  }
  all_[configuration] = std::move(candidate);
  return {};
}

Status TuneCandidates::compile(const std::vector<std::size_t>& configurations, std::size_t threads,
                               const std::function<bool()>& go_on) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::size_t> unknown;
  for (const std::size_t configuration : configurations) {
    if (!all_[configuration].is_known) unknown.push_back(configuration);
  }
  // Some for each thread, so that they end together, and few enough to stop soon.
  const std::size_t at_once = 2 * threads;
  for (std::size_t done = 0; done < unknown.size() && go_on(); done += at_once) {
    const std::size_t count = std::min(at_once, unknown.size() - done);
    std::vector<Status> statuses(count);
    on_threads(count, threads, [&](std::size_t i) { statuses[i] = make_known(unknown[done + i]); });
    for (Status& status : statuses) CUBINERY_RETURN_IF_ERROR(std::move(status));
  }
  return {};
}

}  // namespace cubinery
