#include "benchmarks/rows.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace cubinery::bench {
namespace {

using nlohmann::ordered_json;

constexpr double kKeyCorrelation = 0.9;  // init
constexpr std::uint64_t kSeed = 6;  // qwen: of the first 8, 16 and 32 heads a quarter never decays

ordered_json read(const std::string& path) {
  std::ifstream file(path);
  ordered_json root = ordered_json::parse(file, nullptr, false);
  if (!root.is_object()) throw std::runtime_error("cannot read " + path);
  return root;
}

std::string path_of(const Arguments& arguments, const std::string& name) {
  return arguments.get("--folder", "benchmarks") + "/" + name;
}

// "f32,bf16" or "1,8" or "[8192,4096]": JSON values, or else words.
ordered_json values_in(const std::string& text) {
  ordered_json values = ordered_json::parse("[" + text + "]", nullptr, false);
  return values.is_array() ? values : ordered_json(split(text));
}

// What --with says, by name: in place of an axis' values.
ordered_json replacements(const Arguments& arguments, const ordered_json& set) {
  ordered_json instead = ordered_json::object();
  if (arguments.has("--quick")) instead = set.value("quick", ordered_json::object());
  for (const std::string& text : arguments.all("--with")) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      throw std::runtime_error("--with " + text + "; accepted: NAME=VALUE[,VALUE...]");
    }
    instead[text.substr(0, equals)] = values_in(text.substr(equals + 1));
  }
  return instead;
}

// The objects of an axis: {"name": [values]}, or a list of objects, of which those stay that have
// one of the values that are wanted.
std::vector<ordered_json> steps_of(const ordered_json& axis, const ordered_json& instead) {
  std::vector<ordered_json> steps;
  if (axis.is_object()) {
    const std::string name = axis.begin().key();
    for (const ordered_json& value : instead.value(name, axis.begin().value())) {
      steps.push_back({{name, value}});
    }
    return steps;
  }
  std::copy_if(axis.begin(), axis.end(), std::back_inserter(steps), [&](const ordered_json& step) {
    return std::all_of(instead.items().begin(), instead.items().end(), [&](const auto& wanted) {
      if (!step.contains(wanted.key())) return true;
      const ordered_json& values = wanted.value();
      return std::find(values.begin(), values.end(), step.at(wanted.key())) != values.end();
    });
  });
  return steps;
}

std::vector<Row> rows_of(const ordered_json& set, const Row& fixed, const Arguments& arguments) {
  ordered_json axes = set.value("axes", ordered_json::array());
  if (set.contains("file")) {
    const std::string having = set.value("having", "");
    ordered_json listed = ordered_json::array();
    const ordered_json file = read(path_of(arguments, set.at("file")));
    for (const ordered_json& row : file.at("rows")) {
      if (having.empty() || row.contains(having)) listed.push_back(row);
    }
    axes.push_back(std::move(listed));
  }
  const ordered_json instead = replacements(arguments, set);
  // A name that no axis has is one more.
  for (const auto& replaced : instead.items()) {
    const std::string& name = replaced.key();
    const bool known = std::any_of(axes.begin(), axes.end(), [&](const ordered_json& axis) {
      return (axis.is_object() ? axis
              : axis.empty()   ? ordered_json()
                               : axis.front())
          .contains(name);
    });
    if (!known) axes.push_back({{name, replaced.value()}});
  }
  std::vector<Row> rows{fixed};
  for (const ordered_json& axis : axes) {
    const std::vector<ordered_json> steps = steps_of(axis, instead);
    std::vector<Row> longer;
    for (const Row& row : rows) {
      for (const ordered_json& step : steps) {
        longer.push_back(row);
        longer.back().update(step);
      }
    }
    rows = std::move(longer);
  }
  return rows;
}

}  // namespace

std::vector<Row> chosen_rows(const std::string& op, const Arguments& arguments) {
  const ordered_json known = read(path_of(arguments, "rows.json")).at(op);
  const ordered_json& sets = known.at("sets");
  std::vector<std::string> names = split(arguments.get("--rows"));
  std::string accepted;
  for (const auto& [name, set] : sets.items()) {
    accepted.append(accepted.empty() ? "" : ", ").append(name);
    if (!arguments.has("--rows") && !set.value("if_named", false)) names.push_back(name);
  }
  const auto unknown = std::find_if(names.begin(), names.end(),
                                    [&](const std::string& name) { return !sets.contains(name); });
  if (unknown != names.end()) {
    throw std::runtime_error("--rows " + *unknown + "; accepted: " + accepted);
  }
  std::vector<Row> rows;
  for (const std::string& name : names) {
    for (Row& row : rows_of(sets.at(name), known.at("fixed"), arguments)) {
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) throw std::runtime_error("--with: no row has these values");
  return rows;
}

Row identity_of(const std::string& op, const Row& row, const Arguments& arguments) {
  Row identity = {{"op", op}};
  const ordered_json known = read(path_of(arguments, "rows.json"));
  for (const std::string name : known.at(op).at("identity")) {
    identity[name] = row.value(name, ordered_json());
  }
  return identity;
}

RowData data_of(const Row& row) {
  if (!row.contains("protocol")) return {};
  const std::string protocol = row.at("protocol");
  for (const auto& [gates_name, gates] : {std::pair{"strong", GateDistribution::kStrong},
                                          {"qwen", GateDistribution::kQwen},
                                          {"undecayed", GateDistribution::kUndecayed},
                                          {"init", GateDistribution::kInit},
                                          {"extreme", GateDistribution::kExtreme}}) {
    for (const auto& [name, dtype] : {std::pair{"-bf16", "bf16"}, {"-fp16", "f16"}}) {
      if (protocol != std::string(gates_name) + name) continue;
      const bool strong = gates == GateDistribution::kStrong;
      const bool init = gates == GateDistribution::kInit;
      RowData made{
          .data = {.seed = kSeed, .gates = gates, .key_correlation = init ? kKeyCorrelation : 0},
          .problem = {{"dtype", dtype},
                      {"output_dtype", dtype},
                      {"varlen", !strong || row.at("seqlens").size() > 1},
                      {"state_layout", "kv"},
                      {"has_initial_state", !strong}}};
      if (strong) {
        made.scale = 1.0f;
        made.problem["gate_dtype"] = made.problem["beta_dtype"] = dtype;
      }
      return made;
    }
  }
  throw std::runtime_error("protocol " + protocol +
                           "; accepted: strong, qwen, undecayed, init or extreme, then -bf16 or "
                           "-fp16");
}

std::vector<std::int64_t> lengths_of(const Row& row) {
  if (row.contains("seqlens")) return row.at("seqlens");
  if (row.contains("batch")) {
    return std::vector<std::int64_t>(row.at("batch").get<std::size_t>(), row.value("tokens", 1));
  }
  const auto sequences = row.at("sequences").get<std::size_t>();
  return std::vector<std::int64_t>(
      sequences, row.at("tokens").get<std::int64_t>() / static_cast<std::int64_t>(sequences));
}

std::string problem_json(const Row& row, const std::string& defaults) {
  const ordered_json fields = ordered_json::parse(defaults);
  Row all = row;
  all.update(data_of(row).problem);
  if (row.contains("qk_heads")) all["q_heads"] = all["k_heads"] = row.at("qk_heads");
  if (row.contains("tokens")) all["draft_tokens"] = row.at("tokens");
  if (row.value("stored_states", "") == "none") all.erase("stored_states");
  Row problem = Row::object();
  for (const auto& [name, value] : all.items()) {
    if (fields.contains(name)) problem[name] = value;
  }
  return problem.dump();
}

}  // namespace cubinery::bench
