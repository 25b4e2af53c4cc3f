#include "results/embedded.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace cubinery {
namespace {

Shape shape_of(const EmbeddedResult::Size (&sizes)[EmbeddedResult::kMost]) {
  Shape shape;
  shape.reserve(EmbeddedResult::kMost);
  for (const EmbeddedResult::Size& size : sizes) {
    if (size.name == nullptr) break;
    shape.push_back({size.name, size.value});
  }
  return shape;
}

bool is_in(const char* const (&bits)[EmbeddedResult::kMost], std::string_view name) {
  return std::any_of(std::begin(bits), std::end(bits),
                     [&](const char* bit) { return bit != nullptr && name == bit; });
}

std::vector<TunedValue> values_of(const EmbeddedResult::Value (&values)[EmbeddedResult::kMost],
                                  const char* const (&bits)[EmbeddedResult::kMost]) {
  std::vector<TunedValue> made;
  made.reserve(EmbeddedResult::kMost);
  for (const EmbeddedResult::Value& value : values) {
    if (value.name == nullptr) break;
    made.push_back({value.name, value.value, value.is_text, is_in(bits, value.name)});
  }
  return made;
}

GpuIdentity gpu_of(const EmbeddedResult::Gpu& gpu) {
  return {.arch = gpu.arch,
          .capability = gpu.capability,
          .sm_count = gpu.sm_count,
          .l2_bytes = gpu.l2_bytes,
          .shared_bytes_per_sm = gpu.shared_bytes_per_sm,
          .mig = gpu.mig,
          .name = gpu.name};
}

TuningResult result_of(const EmbeddedResult& from) {
  return {.setting = {.op = from.op,
                      .problem = from.problem,
                      .shape = shape_of(from.shape),
                      .features = shape_of(from.features),
                      .bucket = from.bucket,
                      .gpu = gpu_of(from.gpu),
                      .nvrtc = from.nvrtc,
                      .driver = from.driver,
                      .bytes = from.bytes},
          .configuration = values_of(from.configuration, from.bits),
          .ms = from.ms,
          .templates = from.templates,
          .agreed = values_of(from.agreed, from.bits),
          .agreed_ms = from.agreed_ms,
          .agreed_templates = from.agreed_templates,
          .otherwise = values_of(from.otherwise, from.bits),
          .otherwise_ms = from.otherwise_ms,
          .runner_up = values_of(from.runner_up, from.bits),
          .margin = from.margin,
          .uncertainty = from.uncertainty,
          .clocks = from.clocks,
          .candidates = from.candidates,
          .measured = from.measured,
          .rejected = from.rejected,
          .time = from.time};
}

}  // namespace

std::vector<TuningResult> embedded_results(
    const std::function<bool(std::string_view, std::string_view)>& is_wanted) {
  std::vector<TuningResult> results;
  // They are for a few problems: each is asked for once.
  std::map<std::pair<std::string_view, std::string_view>, bool> asked;
  for (const EmbeddedResult* from = internal::kEmbeddedResults; from->op != nullptr; ++from) {
    const auto [wanted, is_first] = asked.try_emplace({from->op, from->problem});
    if (is_first) wanted->second = !is_wanted || is_wanted(from->op, from->problem);
    if (wanted->second) results.push_back(result_of(*from));
  }
  return results;
}

}  // namespace cubinery
