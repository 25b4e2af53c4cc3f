// The configurations of a space on their way to the GPU: limits, compilation, resources.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/tuning.h"
#include "results/records.h"
#include "results/target.h"

namespace cubinery {

// Why a configuration is not measured.
struct Rejection {
  Verdict verdict = Verdict::kConstraints;
  std::string reason;
};

struct TuneCandidate {
  bool is_known = false;                 // compiled, or rejected
  bool is_prepared = false;              // Tunable::prepare() was called; the caller's to set
  std::optional<Rejection> rejection{};  // by the limits, the compiler or the resources
  std::vector<MeasuredKernel> kernels{};
};

// Why a kernel cannot run on the target: before it is compiled, and with what the compiler says.
std::optional<Rejection> why_impossible(const KernelSpec& spec, const Target& target);
std::optional<Rejection> why_rejected(const KernelSpec& spec, const KernelInfo& info,
                                      const Target& target);

// For one thread at a time.
class TuneCandidates {
 public:
  // `context` and `space` outlive this.
  TuneCandidates(const Context& context, const TuningSpace& space, const GpuIdentity& gpu);

  TuneCandidate& operator[](std::size_t configuration) { return all_[configuration]; }

  // Makes these known, compiling on up to `threads` threads (0: as many as there are processors).
  // `go_on` is asked every now and then; its false ends the call early.
  // kUnsupported: no compiler.  kIo: templates cannot be read.
  Status compile(const std::vector<std::size_t>& configurations, std::size_t threads,
                 const std::function<bool()>& go_on);

 private:
  static Status take(const Result<CompiledKernel>& compiled, const std::string& name,
                     unsigned shared_bytes, TuneCandidate* candidate);
  Status make_known(std::size_t configuration);

  const Context& context_;
  const TuningSpace& space_;
  Target target_;
  std::vector<TuneCandidate> all_;
};

}  // namespace cubinery
