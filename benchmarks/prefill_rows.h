// Rows of the prefill benchmark: what they launch, and the shapes that are measured again and
// again, with the times of others: prefill_rows.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "cubinery/gdn.h"
#include "harness/gdn_operands.h"

namespace cubinery::bench {

// One line of the results.
struct PrefillRow {
  // Distribution of the gates and dtype of q, k, v and o:
  //   strong     g = -U(0, 1), beta = U(0, 0.5), q, k = 0.1 randn, scale 1, gates in the dtype of
  //              q, no initial state; one sequence is dense, not packed
  //   qwen       g = logsigmoid(randn) / 16, 0 for about a quarter of the heads
  //   undecayed  g = 0
  //   init       g = -A softplus(randn + dt_bias) as a model is initialised, correlated keys
  //   extreme    g = -U(31, 69)
  // All but strong: beta = sigmoid(randn), unit q and k, gates in f32, initial state randn, packed.
  // All: 128 x 128, states in f32 KV, the final one is kept, in a tensor of its own.
  std::string protocol = "qwen-bf16";
  int qk_heads = 16;
  int v_heads = 32;
  std::vector<std::int64_t> seqlens{8192};
};

// Throws std::runtime_error when there is no such protocol.
gdn::PrefillProblem prefill_problem(const PrefillRow& row);

gdn::PrefillSize prefill_size(const PrefillRow& row);

// With room for operators that need up to `workspace_bytes`.
GdnOperands prefill_operands(const Gpu& gpu, const PrefillRow& row, std::size_t workspace_bytes);

struct ListedRow {
  PrefillRow row{};
  // "peers_ms": by version, measured by us in the same way; "best_published_ms" and whose it is,
  // "best_published".  Each where known.
  nlohmann::ordered_json others = nlohmann::ordered_json::object();
};

// `set`: "all" that the file lists, "headline" (those with peers_ms), or "gates": one shape, which
// the file need not list, with every distribution of the gates.
// Throws std::runtime_error for a file that is none or a set that is not one of these.
std::vector<ListedRow> prefill_rows(const std::string& path, const std::string& set);

}  // namespace cubinery::bench
