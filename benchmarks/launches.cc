#include "benchmarks/launches.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace cubinery::bench {
namespace {

std::int64_t total(const std::vector<std::int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

// On the device.
template <class T>
DeviceBuffer uploaded(const Gpu& gpu, const std::vector<T>& numbers) {
  DeviceBuffer buffer(gpu, numbers.size() * sizeof(T));
  buffer.upload(std::as_bytes(std::span(numbers)));
  return buffer;
}

// Of a layer: states twice, k, v and gates of accepted tokens once.
double layer_bytes(const gdn::CommitProblem& p, std::int64_t requests, std::int64_t accepted) {
  const double heads = p.heads.count();
  const double states = 2 * heads * p.key_dim * p.value_dim * size_of(p.states.dtype);
  const double rows =
      (p.heads.k * p.key_dim + p.heads.v * p.value_dim) * size_of(p.dtype) +
      heads * (decay_width(p) * size_of(p.inputs.gate_dtype) + size_of(p.inputs.beta_dtype));
  return static_cast<double>(requests) * (states + static_cast<double>(accepted) * rows);
}

}  // namespace

RowLaunches<gdn::CommitProblem>::RowLaunches(const Gpu& gpu, const gdn::CommitProblem& problem,
                                             const Row& row, std::size_t) {
  const auto count = row.at("layers").get<std::size_t>();
  const std::int64_t requests = row.at("batch"), accepted = row.at("accepted");
  std::vector<gdn::CommitLayer> layers;
  while (layers.size() < count) {
    operands_.push_back(operands_of(gpu, as_prefill(problem), lengths_of(row), data_of(row)));
    for (int set = 0; set < operands_.back().sets(); ++set) {
      layers.push_back(as_commit(operands_.back().args(set)).layer);
    }
  }
  layers.resize(count);
  const gdn::Commit commit = gpu.context().prepare(problem).value();
  const std::vector<std::int32_t> counts(idx(requests), static_cast<std::int32_t>(accepted));
  buffers_.push_back(uploaded(gpu, commit.table(layers).value()));
  buffers_.push_back(uploaded(gpu, counts));
  const auto rows = static_cast<std::int64_t>(count);
  args_.layers = Tensor::contiguous(buffers_[0].data(), DType::kI64, {rows, 32});
  args_.accepted = Tensor::contiguous(buffers_[1].data(), DType::kI32, {requests});
  if (problem.inputs.gate_mode == gdn::GateMode::kLowerBound) args_.lower_bound = kLowerBound;
  bytes_ = static_cast<double>(count) * layer_bytes(problem, requests, accepted);
}

Choice choice_of(const gdn::Decode& decode, const Row& row) {
  return decode.choice(row.at("batch").get<std::int64_t>());
}

Choice choice_of(const gdn::Prefill& prefill, const Row& row) {
  const std::vector<std::int64_t> lengths = lengths_of(row);
  return prefill.choice({.tokens = total(lengths),
                         .sequences = static_cast<std::int64_t>(lengths.size()),
                         .max_seqlen = *std::max_element(lengths.begin(), lengths.end())});
}

Choice choice_of(const gdn::Verify& verify, const Row& row) {
  return verify.choice(
      {.requests = row.at("batch").get<std::int64_t>(), .tokens = total(lengths_of(row))});
}

Choice choice_of(const gdn::Commit& commit, const Row& row) {
  return commit.choice({.layers = row.at("layers").get<std::int64_t>(),
                        .requests = row.at("batch").get<std::int64_t>()});
}

Choice choice_of(const gdn::Conv& conv, const Row& row) {
  return conv.choice(
      {.sequences = row.at("sequences").get<std::int64_t>(), .tokens = total(lengths_of(row))});
}

}  // namespace cubinery::bench
