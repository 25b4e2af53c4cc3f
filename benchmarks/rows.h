// The rows that the benchmarks measure: benchmarks/rows.json, and what the command line says.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "harness/data.h"

namespace cubinery::bench {

// Fields of an operator's problem, and sizes, flat: "batch" or "sequences", "tokens" (of a request;
// with "sequences" of all), "seqlens", "qk_heads" (q_heads and k_heads), ...
using Row = nlohmann::ordered_json;

// The rows of the sets that --rows names (none: of all that need not be named), with --with and
// --quick.  Throws std::runtime_error: a file that is none, a set that there is not.
std::vector<Row> chosen_rows(const std::string& op, const Arguments& arguments);

// Of the members that name the row in a record; null: one that it has not.
Row identity_of(const std::string& op, const Row& row, const Arguments& arguments);

// A prefill's "protocol", its distribution of the gates and the dtype of q, k, v and o:
//   strong     g = -U(0, 1), beta = U(0, 0.5), q, k = 0.1 randn, scale 1, gates in the dtype of
//              q, no initial state; one sequence is dense, not packed
//   qwen       g = logsigmoid(randn) / 16, 0 for about a quarter of the heads
//   undecayed  g = 0
//   init       g = -A softplus(randn + dt_bias) as a model is initialised, correlated keys
//   extreme    g = -U(31, 69)
// All but strong: beta = sigmoid(randn), unit q and k, gates in f32, initial state randn, packed.
// All: 128 x 128, states in f32 KV, the final one is kept, in a tensor of its own.  Rows without a
// protocol: as a model is initialised.
struct RowData {
  DataOptions data{.gates = GateDistribution::kInit};
  std::optional<float> scale{};
  Row problem = Row::object();  // the fields that the protocol decides
};
// Throws std::runtime_error when there is no such protocol.
RowData data_of(const Row& row);

// Tokens of each sequence.
std::vector<std::int64_t> lengths_of(const Row& row);

// Those members of the row that are fields of the operator's problem, as JSON for its from_json().
// `defaults`: the problem's to_json().
std::string problem_json(const Row& row, const std::string& defaults);

}  // namespace cubinery::bench
