#include "runtime/gdn/decode_plan.h"

#include <algorithm>

#include "gdn_decode/fields.h"
#include "runtime/gdn/decode_problem.h"
#include "runtime/operator/chooser.h"
#include "runtime/operator/tuned_fields.h"
#include "tuner/choose/shape.h"

namespace cubinery::gdn {
namespace {

using Values = std::vector<TunedValue>;

std::vector<GdnDecodeKey> default_keys(const DecodeProblem& problem) {
  const DecodeKeys keys = decode_keys(problem);
  return {keys.wide, keys.narrow};
}

// The fields that decide what is fast.
std::vector<std::string> decode_outline() {
  return {"key_dim", "value_dim", "dtype", "output_dtype", "state_dtype", "state_layout"};
}

// Reachable cells first, those below them after the lowest.
DecodePlan fill(const DecodeProblem& problem, Chooser chooser, const GpuRates& gpu) {
  std::vector<GdnDecodeKey> options;
  for (const Values& values : chooser.options()) {
    options.push_back(decode_key(problem, values).value_or(GdnDecodeKey{}));
  }
  DecodePlan plan;
  std::vector<std::size_t> places(options.size(), options.size());  // in plan.keys; size(): nowhere
  const std::size_t lowest = DecodePlan::index(problem.heads());
  for (std::size_t i = lowest; i < DecodePlan::kCells; ++i) {
    const std::int64_t states = std::int64_t{1} << i;
    const Chooser::Pick pick = chooser.pick({{"states", states}}, [&](std::size_t option) {
      return decode_us(options[option], states, gpu);
    });
    std::size_t& place = places[pick.option];
    if (place == options.size()) place = place_of(options[pick.option], &plan.keys);
    plan.cells[i] = {place, chooser.choices()[pick.choice]};
    plan.uses_results = plan.uses_results || plan.cells[i].chosen.rung != Rung::kDefault;
  }
  std::fill_n(plan.cells.begin(), lowest, plan.cells[lowest]);
  return plan;
}

}  // namespace

TuningSpace decode_space(const DecodeProblem& problem) {
  const GdnDecodeKey key = decode_keys(problem).wide;
  TuningSpace space{.op = std::string(kDecodeOp),
                    .fixed = fixed_text(key),
                    .configurations = {},
                    .outline = decode_outline()};
  for_each_candidate(key, [&](const GdnDecodeKey& candidate) {
    space.configurations.push_back({decode_values(candidate), {*spec_of(candidate)}});
  });
  return space;
}

Shape decode_features(const DecodeProblem& problem, std::int64_t batch) {
  return {{"states", std::max<std::int64_t>(batch, 1) * problem.heads()}};
}

Values decode_values(const GdnDecodeKey& key) {
  Values values = tuned_values(key);
  for (TunedValue& value : values) {
    // With rows along value_dim a vector holds columns, each of which is summed by itself.
    if (value.name == "vec_bytes") value.changes_bits = key.state_layout == StateLayout::kVK;
  }
  return values;
}

std::optional<GdnDecodeKey> decode_key(const DecodeProblem& problem, const Values& values) {
  GdnDecodeKey key = decode_keys(problem).wide;
  if (!set_tuned_fields(values, "", &key) || !valid(key)) return std::nullopt;
  return key;
}

Question decode_question(const DecodeProblem& problem, const GpuIdentity& gpu,
                         const Toolchain& toolchain) {
  const GdnDecodeKey key = decode_keys(problem).wide;
  return {.op = std::string(kDecodeOp),
          .fixed = fixed_text(key),
          .outline = decode_outline(),
          .gpu = gpu,
          .toolchain = toolchain,
          .usable = [problem](const Values& values) {
            const std::optional<GdnDecodeKey> usable = decode_key(problem, values);
            return usable && decode_values(*usable) == values;
          }};
}

std::size_t DecodePlan::index(std::int64_t states) {
  return std::min(nearest_log2(states), kCells - 1);
}

DecodePlan decode_plan(const DecodeProblem& problem, const GpuRates& gpu, const Answers* answers,
                       std::string_view why_not) {
  std::vector<Values> defaults;
  for (const GdnDecodeKey& key : default_keys(problem)) defaults.push_back(decode_values(key));
  return fill(problem, Chooser(std::move(defaults), answers, why_not), gpu);
}

DecodePlan decode_plan(const GdnDecodeKey& key) {
  DecodePlan plan{.keys = {key}};
  plan.cells.fill(
      {.chosen = {.configuration = to_text(decode_values(key)), .why = "chosen by the caller"}});
  return plan;
}

std::vector<GdnDecodeKey> decode_plan_keys(const DecodeProblem& problem, std::string_view arch,
                                           const std::vector<TuningResult>& results,
                                           const std::string& templates) {
  std::vector<GdnDecodeKey> keys;
  for (const GdnDecodeKey& key : default_keys(problem)) place_of(key, &keys);
  GpuIdentity gpu;
  gpu.arch = arch;
  const Question question = decode_question(problem, gpu, {{}, templates});
  for (const Values& values : possible_configurations(question, results)) {
    if (const std::optional<GdnDecodeKey> key = decode_key(problem, values)) place_of(*key, &keys);
  }
  return keys;
}

}  // namespace cubinery::gdn
