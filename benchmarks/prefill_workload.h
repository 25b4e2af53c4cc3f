// One shape of prefill as the benchmarks run it: several sets of operands, so that every launch
// finds a cold L2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "cubinery/gdn.h"

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
  // All: 128 x 128, states in f32 KV, the final one is kept.
  std::string protocol = "qwen-bf16";
  int qk_heads = 16;
  int v_heads = 32;
  std::vector<std::int64_t> seqlens{8192};

  std::int64_t tokens() const;
};

// Throws std::runtime_error when there is no such protocol.
gdn::PrefillProblem prefill_problem(const PrefillRow& row);

// What one launch must move: every operand once, the workspace not.
std::size_t prefill_bytes(const PrefillRow& row);

// What goes into the operands.  Random rows of q, k, v and the states repeat after kRows of them,
// gates after kRows tokens: both only save time of the host.  A prime, so that the rows that one
// head sees are not the same few.
struct PrefillData {
  static constexpr std::int64_t kRows = 4099;

  explicit PrefillData(const PrefillRow& row);
  // Row `at` of a tensor of rows, as the device sees it.
  std::vector<double> row(DType dtype, const std::vector<std::byte>& rows, std::int64_t at) const;
  // Of a token and head.
  double gate(DType dtype, const std::vector<std::byte>& gates, std::int64_t token, int head) const;

  std::vector<std::byte> q, k, v, state;  // [kRows][128]
  std::vector<std::byte> g, beta;         // [kRows][heads]
  int heads = 0;
  int slowest_head = 0;  // to forget; another than fastest_head if there are two
  int fastest_head = 0;
};

class PrefillWorkload {
 public:
  // With room for operators that need up to `workspace_bytes`.
  PrefillWorkload(const Gpu& gpu, const PrefillRow& row, std::size_t workspace_bytes);

  const Gpu& gpu() const { return gpu_; }
  const PrefillRow& row() const { return row_; }
  const gdn::PrefillProblem& problem() const { return problem_; }
  const PrefillData& data() const { return data_; }
  float scale() const;
  const DeviceBuffer& o(int set) const { return sets_[static_cast<std::size_t>(set)].o; }
  const DeviceBuffer& state_out(int set) const {
    return sets_[static_cast<std::size_t>(set)].state_out;
  }

  int sets() const { return static_cast<int>(sets_.size()); }
  Status launch(const gdn::Prefill& prefill, Stream stream, int set) const;

 private:
  struct Set {
    DeviceBuffer q, k, v, g, beta, o, state, state_out, workspace;
  };
  void make_set(std::size_t workspace_bytes);
  gdn::PrefillArgs args(const Set& set) const;

  const Gpu& gpu_;
  PrefillRow row_;
  gdn::PrefillProblem problem_;
  PrefillData data_;
  DeviceBuffer cu_seqlens_;
  std::vector<Set> sets_;
};

}  // namespace cubinery::bench
