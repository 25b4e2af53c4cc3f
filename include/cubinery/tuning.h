// Tuning: which configuration of a kernel is fastest on this GPU, and why.
//
// What is tuned is a *space*: the configurations that the field tables enumerate for one problem.
// tune() compiles them, compares each with a reference, times those that are right, and writes down
// every measurement as it is made and one result for each shape.  choose() reads the results; the
// library's operators do so by themselves when they are created.
//
//   // tunable: of a class derived from Tunable, as in examples/05_tune_own_kernel.cc
//   TuneSummary summary = tune(context, tunable, {{{"rows", 1024}}, {{"rows", 4096}}}, {}).value();
//   Choice choice = choose(context, tunable.space(), {{"rows", 2000}}, 0);
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/fields.h"
#include "cubinery/kernel.h"
#include "cubinery/kernel_source.h"
#include "cubinery/rung.h"
#include "cubinery/status.h"

namespace cubinery {

// One size of a launch, which no key holds: {"tokens", 8192}.  Values are at least 1.
struct ShapeSize {
  std::string name;
  std::int64_t value = 1;
  bool operator==(const ShapeSize&) const = default;
};
using Shape = std::vector<ShapeSize>;

// The value of one tuned field.
struct TunedValue {
  std::string name;  // as in the field table; where several kernels are tuned together "scan.warps"
  std::string value;          // as to_json() prints it, without quotes
  bool is_text = false;       // a JSON string, as opposed to a number or a boolean
  bool changes_bits = false;  // declared by tuned_bits(): results depend on it
  bool operator==(const TunedValue&) const = default;
};

// One choice of the tuned fields of all kernels that are launched together.  Where an operator has
// several ways to compute (paths), the first value is {"path", its name}.
struct Configuration {
  std::vector<TunedValue> values;
  std::vector<KernelSpec> kernels;
  std::vector<KernelSource> sources{};  // kernels that are given as text
};

// "warps=4;vec=8": the values in their order.
std::string to_text(const std::vector<TunedValue>& values);
// The name of the path that the values belong to; empty where there is only one way to compute.
std::string_view path_of(const std::vector<TunedValue>& values);

// What there is to choose from for one problem.
struct TuningSpace {
  std::string op;       // names the files of results: letters, digits and _
  std::string problem;  // the fields that are not tuned: "dtype=bf16;cols=768"
  std::vector<Configuration> configurations;
  // The same fields at their defaults: what a field counts as that an older result does not name.
  std::string defaults{};
  // Names of fields of the problem that decide what is fast.  A result for a problem that differs
  // in none of them is taken where there is none for the problem itself.  Empty: never.
  std::vector<std::string> outline{};
  // choose() gives all shapes the same values of the fields that change bits.
  bool batch_invariant = false;
  // The path of what all shapes agree on; empty: the best one for all.
  std::string agreed_path{};
  // Of a space without configurations: the rule that is in the way.
  std::string why_empty{};
};

namespace internal {
std::vector<TunedValue> tuned_values(const Table& table, const void* key);
}  // namespace internal

// The tuned and the fixed part of one key.
template <class Key>
std::vector<TunedValue> tuned_values(const Key& key) {
  return internal::tuned_values(internal::table_of<Key>(), &key);
}
template <class Key>
std::string fixed_text(const Key& key) {
  std::string text{};
  for (const FieldText& field : field_texts(key)) {
    if (field.is_tuned) continue;
    if (!text.empty()) text += ';';
    text.append(field.name).append("=").append(field.value);
  }
  return text;
}

// All candidates of a kernel that is launched alone; `key` gives the fixed fields.
template <class Key>
TuningSpace tuning_space(const Key& key) {
  TuningSpace space{.op = Fields<Key>::kName,
                    .problem = fixed_text(key),
                    .configurations = {},
                    .defaults = fixed_text(Key{})};
  for_each_candidate(key, [&](const Key& candidate) {
    // for_each_candidate() gives valid keys only.
    space.configurations.push_back({tuned_values(candidate), {*spec_of(candidate)}});
  });
  space.why_empty = why_no_candidate(key);
  return space;
}

// A macro of a text, and what it may be: {"BLOCK", {"256", "128"}}.
struct SourceChoice {
  std::string name;
  std::vector<std::string> values;
};
// All combinations of a text's macros, each as options "-DBLOCK=256" behind those of the text; the
// first has the first value of each.  `is_valid` leaves out those that it is false for.  An edit of
// the text, or of what it includes, makes results stale.
TuningSpace tuning_space(
    const KernelSource& source, const std::vector<SourceChoice>& choices,
    const std::function<bool(const std::vector<TunedValue>& values)>& is_valid = {});

// The index of `key` among them; the number of configurations if it is none.
std::size_t index_of(const TuningSpace& space, const std::vector<TunedValue>& values);

// What makes two GPUs the same for tuning.
struct GpuIdentity {
  std::string arch;        // "sm_90a"
  std::string capability;  // compute capability: "9.0"
  int sm_count = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t shared_bytes_per_sm = 0;
  std::string mig;   // "1g.18gb": a part of a GPU; empty: the whole
  std::string name;  // "NVIDIA H200": information only

  // All but the name.
  bool is_same(const GpuIdentity& other) const {
    return arch == other.arch && capability == other.capability && sm_count == other.sm_count &&
           l2_bytes == other.l2_bytes && shared_bytes_per_sm == other.shared_bytes_per_sm &&
           mig == other.mig;
  }
};

// kUnsupported: the context has no device.  kDriver: CUDA refused to say.
Result<GpuIdentity> gpu_identity(const Context& context);

// The configuration to launch for a shape: from the context's results (those of its cache directory
// first, then of its layers, then those inside the library), or `otherwise`.  Never an error: a
// results file that cannot be read is a warning in Options::log.
Choice choose(const Context& context, const TuningSpace& space, const Shape& features,
              std::size_t otherwise);

// Milliseconds of one launch, over the replays of a graph.
struct Timing {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  int samples = 0;
};

// How far a configuration's outputs are from the reference.
struct Check {
  double error = 0;  // the largest over all data distributions; NaN never passes
  double limit = 0;
  std::string worst{};  // where: "o, undecayed gates"
  bool passed() const { return error <= limit; }
};

// Operands of one shape on a device.
class Workload {
 public:
  virtual ~Workload() = default;
  // Independent sets of operands; launches go round them, so that each finds a cold L2.  Four times
  // the L2 in all, and at least three, is what the library's own have.
  virtual int sets() const = 0;
  // Enqueues configuration `configuration`, which was prepared, on `stream`; it is captured in a
  // graph.
  virtual Status launch(std::size_t configuration, Stream stream, int set) = 0;
  // What one launch must at least move to and from memory; 0: not known.
  virtual std::int64_t bytes() const { return 0; }
};

// What tune() needs to know of a kernel or an operator.  Called from one thread at a time.
//
// An error of prepare(), check() or a launch is the configuration's own: it is written down and
// never chosen.  But kIo, and so from workload(), ends the call, which returns it; nothing
// more is written down.
class Tunable {
 public:
  virtual ~Tunable() = default;
  virtual const TuningSpace& space() const = 0;
  // What choices depend on, from the sizes of a launch: what choose() is asked with.  By default
  // the sizes themselves.
  virtual Shape features(const Shape& shape) const { return shape; }
  // The configuration that is used without any results.
  virtual std::size_t default_configuration(const Shape& shape) const = 0;
  // Loads the kernels of a configuration; they are in the cache already.
  virtual Status prepare(std::size_t configuration) = 0;
  // Compares a prepared configuration with the reference, on several distributions of the data.
  virtual Result<Check> check(std::size_t configuration) = 0;
  // Allocates and fills operands.  kInvalidArgument: the shape has sizes that the operator does
  // not.
  virtual Result<std::unique_ptr<Workload>> workload(const Shape& shape) = 0;
};

// Where tune() is.
struct TuneProgress {
  std::string_view op;
  std::string_view bucket;  // of the shape
  std::size_t shapes_done = 0, shapes = 0;
  std::size_t measured = 0, candidates = 0;  // of this shape; rejected ones count as measured
  std::string_view best{};                   // configuration, empty while there is none
  double best_ms = 0, default_ms = 0;
  std::string_view what{};  // "compiling", "checking", "timing", "run-off"
};

struct TuneSettings {
  // Wall clock for all shapes, of which enough is kept to compare the best of those that are
  // measured once more.  What is being measured when it ends is still written down.
  std::chrono::milliseconds budget{std::chrono::minutes(10)};
  // Spaces up to this size are searched exhaustively, larger ones by seeded random configurations
  // and local improvement.
  std::size_t exhaustive_up_to = 256;
  std::uint64_t seed = 1;
  std::size_t compile_threads = 0;  // 0: as many as there are processors
  // Where measurements and results are written; empty: "tuning" in the cache directory.
  std::string directory{};
  // Measure again what the directory already has for this GPU and toolchain.
  bool again = false;
  // Asked between measurements; true ends the call as the budget does.
  std::function<bool()> should_stop{};
  std::function<void(const TuneProgress&)> progress{};
};

// What became of one shape.
struct TunedShape {
  Shape shape;
  std::string bucket;
  std::size_t chosen = 0, otherwise = 0;  // configurations: the result and the default
  Timing chosen_ms, otherwise_ms;         // of their run-off, interleaved
  // The fastest of the configurations that agree, for all shapes of the space, in the fields that
  // change bits: what a batch-invariant operator launches.  Often the chosen one.
  std::size_t agreed = 0;
  Timing agreed_ms;
  // Of the two fastest in the run-off: by how much the slower one was slower, as a share.
  double margin = 0;
  // How far the times of another call may be from these, as a share: two calls agree where their
  // times differ by no more than the sum of theirs.
  double uncertainty = 0;
  // There is a result.  False: `why` says what was in its way; what was measured is kept.
  bool complete = false;
  std::string why{};
};

struct TuneSummary {
  std::vector<TunedShape> shapes;
  std::size_t measured = 0, reused = 0, rejected = 0;  // configurations, over all shapes
  bool stopped = false;                                // by the budget or should_stop
  std::string directory;
};

// Measures.  Slow; needs the GPU for itself.  Continues where an earlier call on the same GPU and
// toolchain stopped.  Each result names the fastest configuration, and the fastest of those that
// agree for all shapes of the space in the fields that change bits.
//
// kUnsupported: the context has no device, or no NVRTC.  kInvalidArgument: an empty space or a
// shape that the tunable refuses.  kIo: the directory cannot be written.  kDriver: CUDA failed in a
// way that ends everything (a configuration that fails alone is recorded and left out).
Result<TuneSummary> tune(const Context& context, Tunable& tunable, const std::vector<Shape>& shapes,
                         const TuneSettings& settings);

// How tuning_report() prints.  docs/reports.md describes each.
enum class ReportFormat : int {
  kTable,        // for people: one line for each setting
  kJson,         // everything
  kT4,           // one setting's measurements, as autotuners exchange them
  kKernelTuner,  // one setting's measurements, as a cache file of Kernel Tuner
};

struct ReportRequest {
  ReportFormat format = ReportFormat::kTable;
  // Only settings of this operator or kernel, of this bucket ("states=256"), and whose id begins
  // like this; empty: any.
  std::string op{};
  std::string bucket{};
  std::string setting{};
  // The best rate at which the GPU copies memory, in bytes per second: what times are compared
  // with. 0: not known, they are not.
  double copy_rate = 0;
};

// What `directory` (TuneSummary::directory) holds, as text.  Damaged lines are passed over; kJson
// and kTable name them.  Reads files and nothing else: needs no context.
//
// kIo: the directory or a file cannot be read.  kInvalidArgument: no setting fits the request (an
// absent directory has none), or, with kT4 and kKernelTuner, several do: the message lists them.
Result<std::string> tuning_report(const std::string& directory, const ReportRequest& request);

}  // namespace cubinery
