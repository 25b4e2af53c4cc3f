#include "harness/conv_check.h"

#include <iterator>
#include <numeric>
#include <utility>

#include "runtime/gdn/conv/parts.h"

namespace cubinery {
namespace {

constexpr std::int64_t kChannels = 328;       // not whole warps, but whole vectors
constexpr std::int64_t kMostDrafts = 5;       // tokens of a request that is verified
constexpr std::int64_t kLead = 3, kTail = 2;  // tokens around packed sequences
constexpr std::int64_t kSteps = 37;           // not whole groups of sequences that a thread takes

struct NamedCase {
  const char* name;
  ConvCaseOptions options;
};

// Of a few tokens.
std::vector<NamedCase> accepted_cases(bool varlen) {
  if (!varlen) {
    return {{"requests", {.lengths = Lengths(7, kMostDrafts), .has_flags = true}},
            {"fewer tokens", {.lengths = Lengths(6, kMostDrafts - 3)}},
            {"decoding steps", {.lengths = Lengths(kSteps, 1)}}};
  }
  return {{"requests", {.lengths = {5, 0, 1, 2, 3, 4, 5, 1, 0, 5}, .has_flags = true}},
          {"decoding steps", {.lengths = Lengths(kSteps, 1)}}};
}

std::vector<NamedCase> cases_of(const gdn::ConvProblem& problem) {
  if (problem.from_accepted || stores_every(problem)) return accepted_cases(problem.varlen);
  if (!problem.varlen) {
    return {{"new and continued sequences", {.lengths = Lengths(3, 61), .has_flags = true}},
            {"long sequences", {.lengths = Lengths(2, 301), .magnitude = 100}},
            {"two tokens", {.lengths = Lengths(5, 2), .has_flags = true}},
            {"decoding steps", {.lengths = Lengths(kSteps, 1), .has_flags = true}}};
  }
  const Lengths mixed{5, 0, 1, 2, 3, 4, 0, 7, 130, 1, 1, 61, 9, 0};
  return {{"new and continued sequences", {.lengths = mixed, .has_flags = true}},
          {"long sequences", {.lengths = {3, 301, 2, 257}, .magnitude = 100}},
          {"decoding steps", {.lengths = Lengths(kSteps, 1)}}};
}

}  // namespace

gdn::ConvProblem small_problem(const gdn::ConvProblem& problem) {
  gdn::ConvProblem small = problem;
  if (problem.split_qkv) small.heads = small_heads(problem.heads);
  return small;
}

std::vector<ConvCheckCase> conv_check_cases(const gdn::ConvProblem& problem) {
  std::vector<ConvCheckCase> cases;
  std::uint64_t seed = 1;
  for (auto& [name, options] : cases_of(problem)) {
    options.channels = kChannels;
    options.seed = seed++;
    options.padding = padding_in_turn(problem, cases.size());
    options.padded = 2;
    if (problem.varlen) options.lead = kLead;
    if (problem.varlen) options.tail = kTail;
    if (problem.varlen) options.spare_checkpoints = 2;
    options.checkpoints_in_pool = keeps_in_pool(problem, cases.size());
    if (has_long_window(problem)) options.columns = kMostDrafts + problem.width - 2;
    // The fewest, and more.
    if (problem.circular_state && cases.size() % 2 == 0) options.columns = problem.width - 1;
    if (problem.split_qkv) options.scale = 0.5f;
    ConvCase data(problem, options);
    ConvReference reference = data.reference();
    cases.push_back({name, std::move(data), std::move(reference)});
  }
  return cases;
}

std::vector<gdn::ConvSize> conv_check_sizes(const gdn::ConvProblem& problem) {
  std::vector<gdn::ConvSize> sizes;
  for (const auto& [name, options] : cases_of(problem)) {
    const Lengths& lengths = options.lengths;
    const std::int64_t around = problem.varlen ? kLead + kTail : 0;
    sizes.push_back({.sequences = std::ssize(lengths),
                     .tokens = std::accumulate(lengths.begin(), lengths.end(), around),
                     .channels = kChannels});
  }
  return sizes;
}

Result<Check> ConvCheck::run(const std::vector<Launch>& launches) {
  if (cases_.empty()) cases_ = conv_check_cases(problem_);
  // Packed sequences are taken in runs of tokens, or each by itself.
  const std::size_t hints = problem_.varlen ? 2 : 1;
  return run_cases(device_, cases_, launches.size() * hints,
                   [&](Stream stream, gdn::ConvArgs args, std::size_t, std::size_t number) {
                     args.max_seqlen = static_cast<std::int64_t>(number % hints);
                     return launches[number / hints](stream, args);
                   });
}

}  // namespace cubinery
