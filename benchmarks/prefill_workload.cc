#include "benchmarks/prefill_workload.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "benchmarks/operands.h"
#include "tests/gdn_data.h"

namespace cubinery::bench {
namespace {

using test::Gates;
using test::GateSource;
using test::RowSource;

constexpr int kDim = 128;                // of keys and values
constexpr double kKeyCorrelation = 0.9;  // init
constexpr std::uint64_t kSeed = 6;  // qwen: of the first 8, 16 and 32 heads a quarter never decays

struct Protocol {
  Gates gates;
  DType dtype;
};

Protocol protocol_of(const PrefillRow& row) {
  for (const auto& [gates_name, gates] : {std::pair{"strong", Gates::kStrong},
                                          {"qwen", Gates::kQwen},
                                          {"undecayed", Gates::kUndecayed},
                                          {"init", Gates::kInit},
                                          {"extreme", Gates::kExtreme}}) {
    for (const auto& [name, dtype] : {std::pair{"-bf16", DType::kBF16}, {"-fp16", DType::kF16}}) {
      if (row.protocol == std::string(gates_name) + name) return {gates, dtype};
    }
  }
  throw std::runtime_error("protocol " + row.protocol +
                           "; accepted: strong, qwen, undecayed, init or extreme, then -bf16 or "
                           "-fp16");
}

test::DataOptions options_of(const PrefillRow& row) {
  const Gates gates = protocol_of(row).gates;
  return {.seed = kSeed,
          .gates = gates,
          .key_correlation = gates == Gates::kInit ? kKeyCorrelation : 0};
}

// [kRows][kDim].
std::vector<std::byte> random_rows(const PrefillRow& row, test::Stream stream, DType dtype) {
  const bool raw = stream == test::Stream::kV || stream == test::Stream::kState;
  RowSource source(options_of(row), stream, 0, 0, kDim, raw);
  std::vector<float> rows;
  for (std::int64_t r = 0; r < PrefillData::kRows; ++r) {
    const std::vector<float>& next = source.next();
    rows.insert(rows.end(), next.begin(), next.end());
  }
  return to_bytes(dtype, rows);
}

// Elements of the tensors of one launch.
struct Counts {
  explicit Counts(const PrefillRow& row)
      : keys(idx(row.tokens()) * idx(row.qk_heads) * kDim),
        gates(idx(row.tokens()) * idx(prefill_problem(row).heads())),
        values(gates * kDim),
        states(row.seqlens.size() * idx(prefill_problem(row).heads()) * kDim * kDim) {}

  std::size_t keys;    // of q, of k
  std::size_t gates;   // of g, of beta
  std::size_t values;  // of v, of o
  std::size_t states;
};

}  // namespace

std::int64_t PrefillRow::tokens() const {
  return std::accumulate(seqlens.begin(), seqlens.end(), std::int64_t{0});
}

gdn::PrefillProblem prefill_problem(const PrefillRow& row) {
  const Protocol protocol = protocol_of(row);
  const bool strong = protocol.gates == Gates::kStrong;
  gdn::PrefillProblem problem;
  problem.q_heads = problem.k_heads = row.qk_heads;
  problem.v_heads = row.v_heads;
  problem.dtype = problem.output_dtype = protocol.dtype;
  if (strong) problem.gate_dtype = problem.beta_dtype = problem.dtype;
  problem.varlen = !strong || row.seqlens.size() > 1;
  problem.state_layout = gdn::StateLayout::kKV;
  problem.has_initial_state = !strong;
  return problem;
}

std::size_t prefill_bytes(const PrefillRow& row) {
  const gdn::PrefillProblem p = prefill_problem(row);
  const Counts counts(row);
  const std::size_t state_passes = p.has_initial_state ? 2 : 1;
  return (2 * counts.keys + counts.values) * idx(size_of(p.dtype)) +
         counts.values * idx(size_of(p.output_dtype)) +
         counts.gates * idx(size_of(p.gate_dtype) + size_of(p.beta_dtype)) +
         state_passes * counts.states * idx(size_of(p.state_dtype));
}

PrefillData::PrefillData(const PrefillRow& row) : heads(prefill_problem(row).heads()) {
  const gdn::PrefillProblem problem = prefill_problem(row);
  q = random_rows(row, test::Stream::kQ, problem.dtype);
  k = random_rows(row, test::Stream::kK, problem.dtype);
  v = random_rows(row, test::Stream::kV, problem.dtype);
  state = random_rows(row, test::Stream::kState, problem.state_dtype);
  const std::size_t stride = idx(heads);
  std::vector<float> gates(idx(kRows) * stride), betas(gates.size());
  std::vector<float> decay(stride);  // of the whole
  for (std::size_t h = 0; h < stride; ++h) {
    GateSource source(problem.gate_mode, problem.beta_mode, options_of(row), 0,
                      static_cast<std::int64_t>(h));
    for (std::size_t at = h; at < gates.size(); at += stride) {
      gates[at] = source.next_gate();
      betas[at] = source.next_beta();
      decay[h] -= gates[at];
    }
  }
  g = to_bytes(problem.gate_dtype, gates);
  beta = to_bytes(problem.beta_dtype, betas);
  const auto [slowest, fastest] = std::minmax_element(decay.begin(), decay.end());
  slowest_head = static_cast<int>(slowest - decay.begin());
  fastest_head = static_cast<int>(fastest - decay.begin());
}

std::vector<double> PrefillData::row(DType dtype, const std::vector<std::byte>& rows,
                                     std::int64_t at) const {
  const std::size_t row_bytes = kDim * idx(size_of(dtype));
  return from_bytes(dtype, std::span(rows).subspan(idx(at % kRows) * row_bytes, row_bytes));
}

double PrefillData::gate(DType dtype, const std::vector<std::byte>& gates, std::int64_t token,
                         int head) const {
  const std::size_t size = idx(size_of(dtype));
  const std::size_t at = idx(token % kRows) * idx(heads) + idx(head);
  return from_bytes(dtype, std::span(gates).subspan(at * size, size))[0];
}

PrefillWorkload::PrefillWorkload(const Gpu& gpu, const PrefillRow& row, std::size_t workspace_bytes)
    : gpu_(gpu), row_(row), problem_(prefill_problem(row)), data_(row) {
  std::vector<std::int32_t> bounds{0};
  for (const std::int64_t length : row.seqlens) {
    bounds.push_back(bounds.back() + static_cast<std::int32_t>(length));
  }
  cu_seqlens_ = upload(gpu, bytes_of(bounds));
  const int sets = rotation(prefill_bytes(row));
  for (int set = 0; set < sets; ++set) make_set(workspace_bytes);
}

float PrefillWorkload::scale() const {
  return options_of(row_).gates == Gates::kStrong ? 1 : 1 / std::sqrt(static_cast<float>(kDim));
}

void PrefillWorkload::make_set(std::size_t workspace_bytes) {
  const auto filled = [&](std::size_t count, DType dtype, const std::vector<std::byte>& pattern) {
    DeviceBuffer buffer(gpu_, count * idx(size_of(dtype)));
    fill(gpu_, buffer, pattern);
    return buffer;
  };
  const gdn::PrefillProblem& p = problem_;
  const Counts counts(row_);
  Set set{.q = filled(counts.keys, p.dtype, data_.q),
          .k = filled(counts.keys, p.dtype, data_.k),
          .v = filled(counts.values, p.dtype, data_.v),
          .g = filled(counts.gates, p.gate_dtype, data_.g),
          .beta = filled(counts.gates, p.beta_dtype, data_.beta),
          .o = DeviceBuffer(gpu_, counts.values * idx(size_of(p.output_dtype))),
          .state = filled(p.has_initial_state ? counts.states : 0, p.state_dtype, data_.state),
          .state_out = DeviceBuffer(gpu_, counts.states * idx(size_of(p.state_dtype))),
          .workspace = DeviceBuffer(gpu_, workspace_bytes)};
  sets_.push_back(std::move(set));
}

gdn::PrefillArgs PrefillWorkload::args(const Set& s) const {
  const gdn::PrefillProblem& p = problem_;
  const std::int64_t total = row_.tokens(), heads = p.heads();
  const auto sequences = static_cast<std::int64_t>(row_.seqlens.size());
  gdn::PrefillArgs args;
  args.q = Tensor::contiguous(s.q.data(), p.dtype, {1, total, p.q_heads, kDim});
  args.k = Tensor::contiguous(s.k.data(), p.dtype, {1, total, p.k_heads, kDim});
  args.v = Tensor::contiguous(s.v.data(), p.dtype, {1, total, p.v_heads, kDim});
  args.g = Tensor::contiguous(s.g.data(), p.gate_dtype, {1, total, heads});
  args.beta = Tensor::contiguous(s.beta.data(), p.beta_dtype, {1, total, heads});
  args.o = Tensor::contiguous(s.o.data(), p.output_dtype, {1, total, heads, kDim});
  if (p.varlen) {
    args.cu_seqlens = Tensor::contiguous(cu_seqlens_.data(), p.cu_seqlens_dtype, {sequences + 1});
  }
  const auto states = [&](const DeviceBuffer& buffer) {
    return Tensor::contiguous(buffer.data(), p.state_dtype, {sequences, heads, kDim, kDim});
  };
  args.state = states(p.has_initial_state ? s.state : s.state_out);
  if (p.has_initial_state) args.state_out = states(s.state_out);
  args.scale = scale();
  return args;
}

Status PrefillWorkload::launch(const gdn::Prefill& prefill, Stream stream, int set) const {
  const Set& s = sets_[idx(set)];
  return prefill.launch(stream, args(s),
                        {.data = s.workspace.data(), .bytes = s.workspace.bytes()});
}

}  // namespace cubinery::bench
