// What tuning writes down: measurements of configurations, and results.  Pure functions.
//
// Both are lines of JSON, one record per line; unknown members are passed over, missing ones keep
// their default, so that older and newer lines stay readable.  docs/tuning_files.md has the format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/tuning.h"

namespace cubinery {

inline constexpr int kRecordFormat = 1;

// The bucket that a measurement belongs to: written once per bucket and process, named by the
// measurements.
struct Setting {
  std::string op;
  std::string problem;  // TuningSpace::problem
  Shape shape;
  Shape features;
  std::string bucket;  // bucket_of(features)
  GpuIdentity gpu;
  std::string nvrtc;       // "13.0.88"
  std::string driver;      // "580.159.04": information only
  std::int64_t bytes = 0;  // Workload::bytes()
};
// XXH3-128 of op, problem, bucket, gpu (without its name) and nvrtc: what names a setting.
std::string id_of(const Setting& setting);

enum class Verdict : int {
  kCorrect,
  kConstraints,  // shared memory, threads or registers that the GPU does not have; not compiled, or
                 // not launched
  kCompile,      // does not compile
  kSpills,       // compiles with spills or with warnings of the compiler
  kRuntime,      // CUDA refused or failed
  kWrong,        // outputs differ from the reference
};
// "correct", "constraints", "compile", "spills", "runtime", "wrong".
const char* to_string(Verdict verdict);

struct MeasuredKernel {
  std::string kernel;
  int registers = 0;
  int shared_bytes = 0;  // static and dynamic
  int spill_bytes = 0;   // stored and loaded
  double compile_ms = 0;
};

// Of the GPU while it measured; 0: not known (no NVML).
struct Clocks {
  int sm_mhz = 0;
  int memory_mhz = 0;
};

struct Measurement {
  std::string setting;  // id_of()
  std::vector<TunedValue> configuration;
  std::string templates;  // code_digest() of the configuration's kernels
  Verdict verdict = Verdict::kCorrect;
  std::string reason;  // of a verdict other than kCorrect
  Timing ms;           // kCorrect only
  Check check;
  std::vector<MeasuredKernel> kernels;
  Clocks clocks;
  double check_ms = 0, timing_ms = 0;  // wall clock of checking and of timing it
  std::string time;                    // UTC: "2026-11-21T21:00:00Z"
};

// The decision for one bucket.
struct TuningResult {
  Setting setting;
  std::vector<TunedValue> configuration;
  Timing ms;              // in the run-off
  std::string templates;  // code_digest() of the configuration's kernels
  // The fastest of those that agree, for all settings of the space, in the fields that change bits;
  // its times, and the digest of its kernels.  Empty: the configuration itself.
  std::vector<TunedValue> agreed;
  Timing agreed_ms;
  std::string agreed_templates;
  std::vector<TunedValue> otherwise;  // the default
  Timing otherwise_ms;                // in the same run-off
  // The best two, interleaved: by how much the slower one was slower, as a share; and which it was.
  std::vector<TunedValue> runner_up;
  double margin = 0;
  // How far these times may be from those of another call, as a share; 0: not known.
  double uncertainty = 0;
  Clocks clocks;
  int candidates = 0, measured = 0, rejected = 0;
  std::string time;
};

// What a result gives: with `batch_invariant` its agreed part, which is part of the same choice for
// all settings.
struct Decision {
  const std::vector<TunedValue>& configuration;
  const Timing& ms;
  const std::string& templates;
};
Decision decision_of(const TuningResult& result, bool batch_invariant);

// One line each, ending in '\n'.  Times are shortened to six digits; infinity becomes NaN.
std::string to_line(const Setting& setting);
std::string to_line(const Measurement& measurement);
std::string to_line(const TuningResult& result);

// What a line says that it is, from its first member alone.
enum class RecordKind : int { kSetting, kMeasurement, kResult, kOther };
RecordKind kind_of(std::string_view line);

// kInvalidArgument says what is wrong: not JSON, another format, a member of another type or a
// missing one that nothing can stand in for.
Result<Setting> parse_setting(std::string_view line);
Result<Measurement> parse_measurement(std::string_view line);
Result<TuningResult> parse_result(std::string_view line);

}  // namespace cubinery
