// How much slower choices are than the fastest configurations, where all of them were measured: the
// cost model's, on the H200 recordings in tests/data/tuning, and those that the ladder takes from
// another GPU of the architecture, between the two whose results are inside the library.
#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gdn_decode/fields.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "results/choose.h"
#include "results/embedded.h"
#include "results/record_file.h"
#include "results/shape.h"
#include "results/space.h"
#include "runtime/gdn/decode/cost.h"
#include "runtime/gdn/prefill/cost.h"
#include "tests/catch.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery::regret_test {
namespace {

using Values = std::vector<TunedValue>;

const Arch kArch{9, 0, 'a'};
const std::string kRecorded = CUBINERY_TEST_DIR "/data/tuning";
// What was recorded is of kernels with mma.sync.
const Target kH200 = [] {
  Target target = typical_target(kArch);
  target.arch.suffix = '\0';
  return target;
}();

// What the model says of one setting: the configuration that an operator would launch, and the cost
// of any.
struct Modelled {
  Values otherwise;
  std::function<double(const Values&)> cost_us;
};

Modelled decode_model(const Setting& setting) {
  gdn::DecodeProblem problem;
  problem.heads.q = problem.heads.k = problem.heads.v = 1;
  const std::int64_t states = size_in(setting.features, "states").value_or(0);
  return {
      test::planner_of(problem, kH200).plan(nullptr).candidate(point_of(problem, states)).values(),
      [=](const Values& values) {
        return gdn::decode_us(test::decode_key(problem, values).value(), states, kH200);
      }};
}

Modelled prefill_model(const Setting& setting) {
  const gdn::PrefillSize size{.tokens = size_in(setting.shape, "tokens").value_or(0),
                              .sequences = size_in(setting.shape, "sequences").value_or(0),
                              .max_seqlen = size_in(setting.shape, "max_seqlen").value_or(0)};
  const std::int64_t heads = size_in(setting.features, "states").value_or(0) / size.sequences;
  const std::int64_t group = size_in(setting.features, "group").value_or(0);
  gdn::PrefillProblem problem;
  problem.varlen = true;
  problem.heads.v = static_cast<int>(heads);
  problem.heads.q = problem.heads.k = static_cast<int>(heads / group);
  const std::int64_t length = size_in(setting.features, "length").value_or(0);
  const gdn::PrefillLoad load{
      .sequences = size.sequences, .length = length, .longest = std::max(length, size.max_seqlen)};
  problem.segments = gdn::Segments::kNever;  // what was recorded is of the portable path
  const Plan plan = test::planner_of(problem, kH200).plan(nullptr);
  return {plan.candidate(point_of(problem, size)).values(), [=](const Values& values) {
            const test::PrefillPair pair = test::prefill_pair(problem, values).value();
            return gdn::PrefillCost(pair.chunks, pair.scan, problem.heads.v,
                                    gdn::shared_heads(problem), kH200)
                .us(load);
          }};
}

struct Regrets {
  std::vector<double> otherwise;  // of the operator's default
  std::vector<double> any;        // of the model's pick among all configurations of the same bits
};

Regrets regrets_of(const std::string& folder, const std::string& op,
                   Modelled (*model)(const Setting&)) {
  const Measurements recorded = read_measurements(measurements_path(folder, op)).value();
  CHECK(recorded.damaged.empty());
  std::map<std::string, std::vector<const Measurement*>> by_setting;
  for (const Measurement& measurement : recorded.measurements) {
    if (measurement.verdict == Verdict::kCorrect) {
      by_setting[measurement.setting].push_back(&measurement);
    }
  }
  Regrets regrets;
  for (const auto& [id, measurements] : by_setting) {
    const Setting& setting = recorded.settings.at(id);
    const Modelled modelled = model(setting);
    const Values bits = bits_of(modelled.otherwise);
    const Measurement* best = nullptr;
    const Measurement* pick = nullptr;
    std::optional<double> otherwise_ms;
    for (const Measurement* measurement : measurements) {
      if (bits_of(measurement->configuration) != bits) continue;
      if (best == nullptr || measurement->ms.median < best->ms.median) best = measurement;
      if (pick == nullptr ||
          modelled.cost_us(measurement->configuration) < modelled.cost_us(pick->configuration)) {
        pick = measurement;
      }
      if (measurement->configuration == modelled.otherwise) otherwise_ms = measurement->ms.median;
    }
    INFO(setting.bucket);
    REQUIRE(otherwise_ms);
    regrets.otherwise.push_back(*otherwise_ms / best->ms.median - 1);
    regrets.any.push_back(pick->ms.median / best->ms.median - 1);
    UNSCOPED_INFO(setting.bucket << ": default " << regrets.otherwise.back() << ", any "
                                 << regrets.any.back());
  }
  return regrets;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

// docs/performance.md has the figures.
TEST_CASE("TheModelsChoicesAreNearTheBestOnTheH200", "[tuner]") {
  const Regrets decode = regrets_of(kRecorded + "/h200", "gdn_decode", decode_model);
  CHECK(decode.otherwise.size() >= 10);
  CHECK(mean(decode.otherwise) < 0.02);
  CHECK(most(decode.otherwise) < 0.09);
  CHECK(mean(decode.any) < 0.02);
  const Regrets prefill = regrets_of(kRecorded, "gdn_prefill", prefill_model);
  CHECK(prefill.otherwise.size() >= 12);
  CHECK(mean(prefill.otherwise) < 0.04);
  CHECK(most(prefill.otherwise) < 0.12);
  CHECK(mean(prefill.any) < 0.04);
}

std::vector<nlohmann::json> recorded_rows(const std::string& name) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(kRecorded + "/" + name);
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

// What a row's `shape` says.
gdn::PrefillProblem prefill_of(const nlohmann::json& shape) {
  gdn::PrefillProblem problem;
  problem.heads = {.q = shape["q_heads"], .k = shape["k_heads"], .v = shape["v_heads"]};
  problem.varlen = true;
  return problem;
}
gdn::PrefillSize size_of(const nlohmann::json& shape) {
  return {.tokens = shape["tokens"],
          .sequences = shape["sequences"],
          .max_seqlen = shape.value("max_seqlen", 0)};
}

// By the times of both paths' defaults on an H200, the fastest of each:
// tests/data/tuning/split.jsonl.
TEST_CASE("TheModelSplitsWhereThatIsFaster", "[tuner]") {
  std::vector<double> regrets;
  for (const nlohmann::json& row : recorded_rows("split.jsonl")) {
    gdn::PrefillProblem problem = prefill_of(row["shape"]);
    problem.inputs.use_qk_l2norm = true;
    const Point at = point_of(problem, size_of(row["shape"]));
    const Plan plan = test::planner_of(problem, kH200).plan(nullptr);
    const bool splits = path_of(plan.candidate(at).values()) == "segments";
    const double portable = row["portable_us"], split = row["split_us"];
    const double here = (splits ? split : portable) / std::min(split, portable) - 1;
    UNSCOPED_INFO(row << ": " << (splits ? "segments" : "portable") << ", " << here);
    regrets.push_back(here);
  }
  CHECK(regrets.size() > 100);
  CHECK(mean(regrets) < 0.015);
  CHECK(most(regrets) < 0.25);
}

// The same of Kimi Delta Attention, of which an H200 measured every default: by configuration, us.
// tests/data/tuning/channels.jsonl.
TEST_CASE("TheModelsChoicesForDecaysOfChannelsAreNearTheBest", "[tuner]") {
  const Target h200 = typical_target(kArch);
  std::vector<double> regrets;
  for (const nlohmann::json& row : recorded_rows("channels.jsonl")) {
    gdn::PrefillProblem problem = prefill_of(row["shape"]);
    problem.inputs = {.gate_dtype = DType::kBF16,
                      .beta_dtype = DType::kBF16,
                      .decay = gdn::Decay::kChannel,
                      .gate_mode = row["gate_mode"] == "computed" ? gdn::GateMode::kComputed
                                                                  : gdn::GateMode::kLowerBound,
                      .beta_mode = gdn::BetaMode::kLogit,
                      .use_qk_l2norm = true};
    problem.states.location = gdn::StateLocation::kPool;
    const Point at = point_of(problem, size_of(row["shape"]));
    const Plan plan = test::planner_of(problem, h200).plan(nullptr);
    const std::string chosen = to_text(plan.candidate(at).values());
    std::vector<double> all;
    for (const auto& [configuration, us] : row["us"].items()) all.push_back(us);
    const std::string measured = chosen.substr(std::string("path=").size());
    INFO(row << "\n" << chosen);
    REQUIRE(row["us"].contains(measured));
    const double here =
        row["us"][measured].get<double>() / *std::min_element(all.begin(), all.end()) - 1;
    UNSCOPED_INFO(row["shape"] << row["gate_mode"] << ": " << chosen << ", " << here);
    regrets.push_back(here);
  }
  CHECK(regrets.size() == 138);
  CHECK(mean(regrets) < 0.01);
  CHECK(most(regrets) < 0.13);
}

// The name of a field or size and its text, of each in "a=1;b=2".
std::vector<std::pair<std::string, std::string>> pairs_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ';');) {
    const std::size_t equals = part.find('=');
    pairs.emplace_back(part.substr(0, equals), part.substr(equals + 1));
  }
  return pairs;
}

// Results as they were when both GPUs were compared.
std::vector<TuningResult> recorded_results(const std::vector<nlohmann::json>& rows,
                                           const std::string& gpu) {
  const std::vector<TuningResult> all = embedded_results();
  const auto of_gpu = std::find_if(
      all.begin(), all.end(), [&](const TuningResult& one) { return one.setting.gpu.name == gpu; });
  REQUIRE(of_gpu != all.end());
  std::vector<TuningResult> results;
  for (const nlohmann::json& row : rows) {
    if (row["gpu"] != nlohmann::json(gpu)) continue;
    TuningResult& made = results.emplace_back();
    made.setting = {.op = row["op"],
                    .problem = row["problem"],
                    .shape = {},
                    .features = {},
                    .bucket = row["bucket"],
                    .gpu = of_gpu->setting.gpu,
                    .nvrtc = of_gpu->setting.nvrtc,
                    .driver = {}};
    made.templates = "those of both GPUs";
    for (const auto& [name, value] : pairs_of(row["bucket"]))
      made.setting.features.push_back({name, std::stoll(value)});
    for (const auto& [name, value] : pairs_of(row["best"]))
      made.configuration.push_back({.name = name, .value = value, .is_text = name == "path"});
  }
  return results;
}

// The rung and the configuration that the results of another GPU answer the question of `result`
// with.
std::pair<Rung, std::string> answer_to(const TuningResult& result,
                                       std::vector<TuningResult> of_other_gpu) {
  const Setting& setting = result.setting;
  Toolchain toolchain{.nvrtc = setting.nvrtc, .templates = {}};
  for (const auto* path : OperatorOf<gdn::PrefillProblem>::paths()) {
    toolchain.templates.emplace(path->name(), result.templates);
  }
  const Ladder ladder(
      {.op = setting.op, .problem = setting.problem, .gpu = setting.gpu, .toolchain = toolchain},
      std::move(of_other_gpu));
  const std::optional<Ladder::Nearest> nearest = ladder.nearest(setting.features);
  if (!nearest) return {Rung::kDefault, ladder.why_none()};
  return {nearest->rung, to_text(ladder.configuration(*nearest))};
}

// Rows written by scripts/regret.py, by the GPU's name and the operator's.  docs/performance.md has
// the figures.
TEST_CASE("WhatWasFastestOnTheOtherGpuIsNearTheBest", "[tuner]") {
  std::map<std::pair<std::string, std::string>, std::vector<double>> regrets;
  const std::vector<nlohmann::json> rows = recorded_rows("two_gpus.jsonl");
  std::map<std::string, std::vector<TuningResult>> recorded;
  for (const char* gpu : {"NVIDIA H200", "NVIDIA H100 80GB HBM3"})
    recorded[gpu] = recorded_results(rows, gpu);
  std::map<std::string, std::size_t> next;
  for (const nlohmann::json& row : rows) {
    INFO(row.dump());
    const std::string gpu = row["gpu"];
    const auto [rung, configuration] =
        answer_to(recorded[gpu].at(next[gpu]++), recorded[row["of"]]);
    CHECK(rung == Rung::kSameArch);
    CHECK(configuration == row["theirs"].get<std::string>());
    regrets[{row["gpu"], row["op"]}].push_back(
        row["theirs_ms"].get<double>() / row["best_ms"].get<double>() - 1);
  }
  CHECK(regrets.size() == 4);
  for (const auto& [of, values] : regrets) {
    INFO(of.first << ", " << of.second);
    CHECK(values.size() >= 40);
    // Where many heads fill the card, the H100's slower memory wants four stages, the H200's three.
    const bool differ = of.second == "gdn_prefill";
    CHECK(mean(values) < (differ ? 0.015 : 0.01));
    CHECK(most(values) < (differ ? 0.26 : 0.1));
  }
}

}  // namespace
}  // namespace cubinery::regret_test
