#include "harness/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

namespace cubinery {
namespace {

using gdn::Checkpoints;

constexpr int kCheckpointEvery = 64;  // whole chunks of every size
constexpr std::int64_t kRequests = 6;
constexpr std::int64_t kDenseSequences = 3;

struct Distribution {
  GateDistribution gates;
  double key_correlation;
  const char* name;
};
// Correlated keys are the hardest for the inverse of a chunk.
constexpr Distribution kDistributions[] = {
    {GateDistribution::kStrong, 0, "strong gates"},
    {GateDistribution::kQwen, 0, "qwen gates"},
    {GateDistribution::kUndecayed, 0.5, "undecayed gates, key correlation 0.5"},
    {GateDistribution::kInit, 0.9, "init gates, key correlation 0.9"},
    {GateDistribution::kInit, 0.99, "init gates, key correlation 0.99"},
    {GateDistribution::kExtreme, 0, "extreme gates"},
    {GateDistribution::kUnbalanced, 0, "unbalanced gates"},
};
constexpr std::uint64_t kSeed = 6;  // qwen: of the first 8 heads a quarter never decays

double share(const Deviation& deviation) {
  if (deviation.ok()) return deviation.worst == 0 ? 0 : deviation.worst / deviation.budget();
  const double share = deviation.worst / deviation.budget();
  return share > 1 ? share : std::numeric_limits<double>::infinity();
}

}  // namespace

void add_error(const Deviation& deviation, std::string_view tensor, std::string_view name,
               Check* check) {
  const double error = share(deviation);
  if (error <= check->error && !check->worst.empty()) return;
  check->error = error;
  check->worst = fmt::format("{}, {}", tensor, name);
}

void add_fault(std::string_view fault, std::string_view name, Check* check) {
  if (fault.empty()) return;
  check->error = std::numeric_limits<double>::infinity();
  check->worst = fmt::format("{}, {}", fault, name);
}

gdn::Heads small_heads(const gdn::Heads& heads, int most_in_group) {
  const auto group = [&](int of) { return std::min(heads.count() / of, most_in_group); };
  const int q = group(heads.q), k = group(heads.k), v = group(heads.v);
  int count = std::lcm(std::lcm(q, k), v);
  if (count <= 2) count *= 2;
  return {.q = count / q, .k = count / k, .v = count / v};
}

GdnProblem small_problem(const GdnProblem& problem) {
  GdnProblem small = problem;
  // Groups of a convolution are clusters, which have as many blocks as they may.
  small.heads = problem.conv.is_there() ? small_heads(problem.heads, problem.heads.count())
                                        : small_heads(problem.heads);
  small.checkpoint_every = std::min(small.checkpoint_every, kCheckpointEvery);
  return small;
}

std::vector<std::int64_t> check_lengths(const GdnProblem& problem, int chunk_size,
                                        const TokenSteps& steps) {
  if (chunk_size == 0) {
    std::vector<std::int64_t> lengths(idx(kRequests), steps.most);
    for (std::int64_t n = 0; problem.varlen && n < kRequests; ++n) {
      lengths[idx(n)] = std::max<std::int64_t>(steps.most - n, 1);
    }
    return lengths;
  }
  const std::int64_t chunk = chunk_size;
  const std::int64_t several = 11 * chunk + 5;  // and several parts, where sequences are cut
  if (!problem.varlen) return std::vector<std::int64_t>(idx(kDenseSequences), several);
  return {chunk + 1, 3, 0, 1, chunk - 1, chunk, several};
}

GdnCase check_case(const GdnProblem& problem, const DataOptions& data, int chunk_size,
                   const TokenSteps& steps) {
  CaseOptions options{
      .seed = data.seed, .gates = data.gates, .key_correlation = data.key_correlation};
  options.padding = padding_in_turn(problem, static_cast<std::size_t>(data.gates));
  options.padded = 1;
  options.checkpoints_in_pool = keeps_in_pool(problem, static_cast<std::size_t>(data.gates));
  // Verifications and steps have no flags.
  if (chunk_size != 0 && static_cast<int>(data.gates) % 2 == 0) options.fresh_every = 2;
  options.chunk_size = chunk_size;
  options.round_each_token = steps.round_each_token;
  options.has_outputs = steps.has_outputs;
  options.parents = steps.parents;
  return GdnCase(problem, {.lengths = check_lengths(problem, chunk_size, steps)}, options);
}

const std::vector<GdnCheck::Case>& GdnCheck::cases(int chunk_size) {
  std::vector<Case>& cases = cases_[chunk_size];
  if (!cases.empty()) return cases;
  for (const Distribution& d : kDistributions) {
    const DataOptions data{.seed = kSeed, .gates = d.gates, .key_correlation = d.key_correlation};
    GdnCase made = check_case(problem_, data, chunk_size, steps_);
    std::vector<GdnReference> references = made.references();
    cases.push_back({d.name, std::move(made), std::move(references)});
  }
  return cases;
}

Result<Check> GdnCheck::run(int chunk_size, const Launch& launch) {
  return run_cases(device_, cases(chunk_size), 1,
                   [&](Stream stream, const GdnArgs& args, std::size_t number, std::size_t) {
                     return launch(stream, args, number);
                   });
}

}  // namespace cubinery
