// The members of records in the order of their lines: the one list of what is written and read.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "results/records.h"

namespace cubinery {

// kUnwritten: may be there, and is not written.
enum class Need : int { kOptional, kRequired, kUnwritten };

// A number that may be NaN, which is null.
template <class T>
struct OrNan {
  T& value;
};
template <class T>
OrNan(T&) -> OrNan<T>;  // clang 14 does not deduce it

// The names of the fields that change bits, of these configurations.
using BitsOf = std::vector<const std::vector<TunedValue>*>;

template <class T, class Record>
concept Is = std::same_as<std::remove_const_t<T>, Record>;

// members_of(visit, record) calls visit(name, member) or visit(name, member, need) for each member
// of a record: const to write it, else to read it.  Members that are objects have members_of().

void members_of(const auto& visit, Is<GpuIdentity> auto& gpu) {
  visit("arch", gpu.arch, Need::kRequired);
  visit("capability", gpu.capability);
  visit("sm_count", gpu.sm_count);
  visit("l2_bytes", gpu.l2_bytes);
  visit("shared_bytes_per_sm", gpu.shared_bytes_per_sm);
  visit("mig", gpu.mig);
  visit("name", gpu.name);
}

void members_of(const auto& visit, Is<Timing> auto& timing) {
  visit("median", timing.median);
  visit("p10", timing.p10);
  visit("p90", timing.p90);
  visit("samples", timing.samples);
}

void members_of(const auto& visit, Is<Check> auto& check) {
  visit("error", OrNan{check.error});
  visit("limit", OrNan{check.limit});
  visit("worst", check.worst);
}

void members_of(const auto& visit, Is<Clocks> auto& clocks) {
  visit("sm_mhz", clocks.sm_mhz);
  visit("memory_mhz", clocks.memory_mhz);
}

void members_of(const auto& visit, Is<MeasuredKernel> auto& kernel) {
  visit("kernel", kernel.kernel);
  visit("registers", kernel.registers);
  visit("shared_bytes", kernel.shared_bytes);
  visit("spill_bytes", kernel.spill_bytes);
  visit("compile_ms", kernel.compile_ms);
}

void members_of(const auto& visit, Is<Setting> auto& setting) {
  visit("op", setting.op, Need::kRequired);
  visit("problem", setting.problem, Need::kRequired);
  visit("shape", setting.shape, Need::kRequired);
  visit("features", setting.features, Need::kRequired);
  visit("bucket", setting.bucket, Need::kRequired);
  visit("gpu", setting.gpu, Need::kRequired);
  visit("nvrtc", setting.nvrtc, Need::kRequired);
  visit("driver", setting.driver);
  visit("bytes", setting.bytes);
}

void members_of(const auto& visit, Is<Measurement> auto& measurement) {
  visit("of", measurement.setting, Need::kRequired);
  visit("configuration", measurement.configuration, Need::kRequired);
  visit("bits", BitsOf{&measurement.configuration});
  visit("templates", measurement.templates);
  visit("verdict", measurement.verdict, Need::kRequired);
  visit("reason", measurement.reason,
        measurement.reason.empty() ? Need::kUnwritten : Need::kOptional);
  const bool is_timed = measurement.verdict == Verdict::kCorrect;
  visit("ms", measurement.ms, is_timed ? Need::kRequired : Need::kUnwritten);
  visit("check", measurement.check);
  visit("kernels", measurement.kernels);
  visit("clocks", measurement.clocks);
  visit("check_ms", measurement.check_ms);
  visit("timing_ms", measurement.timing_ms);
  visit("time", measurement.time);
}

void members_of(const auto& visit, Is<TuningResult> auto& result) {
  members_of(visit, result.setting);
  visit("configuration", result.configuration, Need::kRequired);
  visit("bits",
        BitsOf{&result.configuration, &result.agreed, &result.otherwise, &result.runner_up});
  visit("ms", result.ms, Need::kRequired);
  visit("templates", result.templates);
  const auto if_agreed = [&](Need need) { return result.agreed.empty() ? Need::kUnwritten : need; };
  visit("agreed", result.agreed, if_agreed(Need::kOptional));
  visit("agreed_ms", result.agreed_ms, if_agreed(Need::kRequired));
  visit("agreed_templates", result.agreed_templates, if_agreed(Need::kOptional));
  visit("otherwise", result.otherwise);
  visit("otherwise_ms", result.otherwise_ms);
  visit("runner_up", result.runner_up);
  visit("margin", result.margin);
  visit("uncertainty", result.uncertainty);
  visit("clocks", result.clocks);
  visit("candidates", result.candidates);
  visit("measured", result.measured);
  visit("rejected", result.rejected);
  visit("time", result.time);
}

}  // namespace cubinery
