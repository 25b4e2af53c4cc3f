#include "benchmarks/prefill_rows.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "benchmarks/operands.h"

namespace cubinery::bench {
namespace {

using nlohmann::ordered_json;

constexpr double kKeyCorrelation = 0.9;  // init
constexpr std::uint64_t kSeed = 6;  // qwen: of the first 8, 16 and 32 heads a quarter never decays

struct Protocol {
  GateDistribution gates;
  DType dtype;
};

Protocol protocol_of(const PrefillRow& row) {
  for (const auto& [gates_name, gates] : {std::pair{"strong", GateDistribution::kStrong},
                                          {"qwen", GateDistribution::kQwen},
                                          {"undecayed", GateDistribution::kUndecayed},
                                          {"init", GateDistribution::kInit},
                                          {"extreme", GateDistribution::kExtreme}}) {
    for (const auto& [name, dtype] : {std::pair{"-bf16", DType::kBF16}, {"-fp16", DType::kF16}}) {
      if (row.protocol == std::string(gates_name) + name) return {gates, dtype};
    }
  }
  throw std::runtime_error("protocol " + row.protocol +
                           "; accepted: strong, qwen, undecayed, init or extreme, then -bf16 or "
                           "-fp16");
}

std::vector<ListedRow> read(const std::string& path) {
  std::ifstream file(path);
  const ordered_json root = ordered_json::parse(file, nullptr, false);
  if (!root.is_object()) throw std::runtime_error("cannot read " + path);
  std::vector<ListedRow> rows;
  for (const ordered_json& line : root.at("rows")) {
    ListedRow listed;
    listed.row = {.protocol = line.at("protocol"),
                  .qk_heads = line.at("qk_heads"),
                  .v_heads = line.at("v_heads"),
                  .seqlens = line.at("seqlens")};
    for (const char* name : {"peers_ms", "best_published_ms", "best_published"}) {
      if (line.contains(name)) listed.others[name] = line.at(name);
    }
    rows.push_back(std::move(listed));
  }
  return rows;
}

}  // namespace

gdn::PrefillProblem prefill_problem(const PrefillRow& row) {
  const Protocol protocol = protocol_of(row);
  const bool strong = protocol.gates == GateDistribution::kStrong;
  gdn::PrefillProblem problem;
  problem.heads.q = problem.heads.k = row.qk_heads;
  problem.heads.v = row.v_heads;
  problem.dtype = problem.output_dtype = protocol.dtype;
  if (strong) problem.inputs.gate_dtype = problem.inputs.beta_dtype = problem.dtype;
  problem.varlen = !strong || row.seqlens.size() > 1;
  problem.states.layout = gdn::StateLayout::kKV;
  problem.states.has_initial = !strong;
  return problem;
}

gdn::PrefillSize prefill_size(const PrefillRow& row) {
  return {.tokens = GdnExtent{.lengths = row.seqlens}.tokens(),
          .sequences = static_cast<std::int64_t>(row.seqlens.size()),
          .max_seqlen = *std::max_element(row.seqlens.begin(), row.seqlens.end())};
}

GdnOperands prefill_operands(const Gpu& gpu, const PrefillRow& row, std::size_t workspace_bytes) {
  const GateDistribution gates = protocol_of(row).gates;
  GdnOperands::Options options{
      .lengths = row.seqlens,
      .data = {.seed = kSeed,
               .gates = gates,
               .key_correlation = gates == GateDistribution::kInit ? kKeyCorrelation : 0},
      .workspace_bytes = workspace_bytes,
      .separate_out = true};
  if (gates == GateDistribution::kStrong) options.scale = 1.0f;
  return make_operands(gpu, prefill_problem(row), std::move(options));
}

std::vector<ListedRow> prefill_rows(const std::string& path, const std::string& set) {
  std::vector<ListedRow> rows;
  if (set == "gates") {
    for (const char* protocol : {"strong-bf16", "undecayed-bf16", "init-bf16", "extreme-bf16"}) {
      rows.push_back({.row = {.protocol = protocol}});
    }
    return rows;
  }
  if (set != "all" && set != "headline") {
    throw std::runtime_error("rows " + set + "; accepted: headline, all, gates");
  }
  for (ListedRow& listed : read(path)) {
    if (set == "all" || listed.others.contains("peers_ms")) rows.push_back(std::move(listed));
  }
  return rows;
}

}  // namespace cubinery::bench
