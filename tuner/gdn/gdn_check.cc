#include "tuner/gdn/gdn_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/jit/on_threads.h"

namespace cubinery {
namespace {

using gdn::Checkpoints;

constexpr int kMostHeadsInGroup = 4;
constexpr int kCheckpointEvery = 64;  // whole chunks of every size
constexpr std::int64_t kDecodeRequests = 6;
constexpr std::int64_t kDenseSequences = 3;

struct Distribution {
  Gates gates;
  double key_correlation;
  const char* name;
};
// Correlated keys are the hardest for the inverse of a chunk.
constexpr Distribution kDistributions[] = {
    {Gates::kStrong, 0, "strong gates"},
    {Gates::kQwen, 0, "qwen gates"},
    {Gates::kUndecayed, 0.5, "undecayed gates, key correlation 0.5"},
    {Gates::kInit, 0.9, "init gates, key correlation 0.9"},
    {Gates::kInit, 0.99, "init gates, key correlation 0.99"},
    {Gates::kExtreme, 0, "extreme gates"},
};
constexpr std::uint64_t kSeed = 6;  // qwen: of the first 8 heads a quarter never decays

std::size_t processors() { return std::max(1u, std::thread::hardware_concurrency()); }

double share(const Comparison& comparison) {
  if (comparison.ok()) return comparison.worst == 0 ? 0 : comparison.worst / comparison.budget();
  const double share = comparison.worst / comparison.budget();
  return share > 1 ? share : std::numeric_limits<double>::infinity();
}

void add(const Comparison& comparison, std::string_view tensor, std::string_view name,
         Check* check) {
  const double error = share(comparison);
  if (error <= check->error && !check->worst.empty()) return;
  check->error = error;
  check->worst = fmt::format("{}, {}", tensor, name);
}

}  // namespace

gdn::PrefillProblem small_problem(const gdn::PrefillProblem& problem) {
  const auto group = [&](int heads) {
    return std::min(problem.heads() / heads, kMostHeadsInGroup);
  };
  const int q = group(problem.q_heads), k = group(problem.k_heads), v = group(problem.v_heads);
  int heads = std::lcm(std::lcm(q, k), v);
  if (heads <= 2) heads *= 2;
  gdn::PrefillProblem small = problem;
  small.q_heads = heads / q;
  small.k_heads = heads / k;
  small.v_heads = heads / v;
  small.checkpoint_every = kCheckpointEvery;
  return small;
}

std::vector<std::int64_t> check_lengths(const gdn::PrefillProblem& problem, int chunk_size) {
  if (chunk_size == 0) return std::vector<std::int64_t>(idx(kDecodeRequests), 1);
  const std::int64_t chunk = chunk_size;
  const std::int64_t several = 3 * chunk + 5;
  if (!problem.varlen) return std::vector<std::int64_t>(idx(kDenseSequences), several);
  return {chunk + 1, 3, 0, 1, chunk - 1, chunk, several};
}

gdn::PrefillSize GdnCheck::size(int chunk_size) const {
  const GdnExtent extent{.lengths = check_lengths(problem_, chunk_size)};
  return {.tokens = extent.tokens(), .sequences = extent.sequences()};
}

std::vector<GdnCheck::Case>& GdnCheck::cases(int chunk_size) {
  std::vector<Case>& cases = cases_[chunk_size];
  if (!cases.empty()) return cases;
  const std::vector<std::int64_t> lengths = check_lengths(problem_, chunk_size);
  for (const Distribution& d : kDistributions) {
    const DataOptions data{.seed = kSeed, .gates = d.gates, .key_correlation = d.key_correlation};
    cases.push_back({.name = d.name, .data = GdnCase(problem_, lengths, data, chunk_size)});
    cases.back().after.resize(cases.back().data.image().size());
  }
  const std::size_t units = cases.front().data.units();
  on_threads(cases.size() * units, processors(),
             [&](std::size_t i) { cases[i / units].data.compute(i % units); });
  return cases;
}

Status GdnCheck::launch_all(std::vector<Case>* cases, const Launch& launch) {
  const std::size_t bytes = cases->front().data.image().size();
  Result<DeviceMemory> memory = DeviceMemory::allocate(device_, bytes);
  if (!memory) return std::move(memory).error();
  Result<DeviceStream> stream = DeviceStream::create(device_);
  if (!stream) return std::move(stream).error();
  for (std::size_t i = 0; i < cases->size(); ++i) {
    Case& one = (*cases)[i];
    CUBINERY_RETURN_IF_ERROR(memory->upload(one.data.image()));
    CUBINERY_RETURN_IF_ERROR(launch(stream->get(), one.data.args(memory->data()), i));
    CUBINERY_RETURN_IF_ERROR(stream->synchronize());
    CUBINERY_RETURN_IF_ERROR(memory->download(one.after));
  }
  return {};
}

Result<Check> GdnCheck::run(int chunk_size, const Launch& launch) {
  std::vector<Case>& cases = this->cases(chunk_size);
  CUBINERY_RETURN_IF_ERROR(launch_all(&cases, launch));
  const std::size_t units = cases.front().data.units();
  std::vector<GdnComparison> comparisons(cases.size() * units);
  on_threads(comparisons.size(), processors(), [&](std::size_t i) {
    const Case& one = cases[i / units];
    comparisons[i] = one.data.compare(i % units, one.after);
  });
  std::vector<std::string> faults(cases.size());
  on_threads(cases.size(), processors(),
             [&](std::size_t i) { faults[i] = cases[i].data.fault(cases[i].after); });
  Check check{.limit = 1};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    GdnComparison whole;
    for (std::size_t unit = 0; unit < units; ++unit) whole.merge(comparisons[i * units + unit]);
    add(whole.o, "o", cases[i].name, &check);
    add(whole.state, "state", cases[i].name, &check);
    add(whole.checkpoints, "checkpoints", cases[i].name, &check);
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (faults[i].empty()) continue;
    check.error = std::numeric_limits<double>::infinity();
    check.worst = fmt::format("{}, {}", faults[i], cases[i].name);
  }
  return check;
}

}  // namespace cubinery
