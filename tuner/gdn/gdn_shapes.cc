#include "tuner/gdn/gdn_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "common/chunk_record.h"
#include "runtime/gdn/decode_problem.h"
#include "runtime/gdn/prefill_problem.h"
#include "tuner/choose/shape.h"

namespace cubinery {
namespace {

constexpr int kChunkSizes[] = {16, 32, 64};

Status refused(std::string_view op, const Shape& shape, std::string_view why) {
  return Status(Code::kInvalidArgument,
                fmt::format("{}: shape \"{}\": {}", op, to_text(shape), why));
}

constexpr std::string_view kHeads[] = {"q_heads", "k_heads", "v_heads"};

// That a shape has all of `needed`, and nothing else but `optional` and heads.
Status check_sizes(std::string_view op, const Shape& shape,
                   const std::vector<std::string_view>& needed,
                   const std::vector<std::string_view>& optional) {
  CUBINERY_RETURN_IF_ERROR(check_shape(op, shape));
  const auto is_in = [](const auto& names, std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  for (const std::string_view name : needed) {
    if (!size_in(shape, name)) return refused(op, shape, fmt::format("{} is missing", name));
  }
  std::vector<std::string_view> accepted = needed;
  accepted.insert(accepted.end(), optional.begin(), optional.end());
  accepted.insert(accepted.end(), std::begin(kHeads), std::end(kHeads));
  for (const ShapeSize& size : shape) {
    if (is_in(accepted, size.name)) continue;
    return refused(
        op, shape,
        fmt::format("{} is not a size of it; accepted: {}", size.name, fmt::join(accepted, ", ")));
  }
  return {};
}

// Puts the heads of the shape into the problem.
template <class Problem>
Status set_heads(std::string_view op, const Shape& shape, Problem* problem) {
  int* const counts[] = {&problem->heads.q, &problem->heads.k, &problem->heads.v};
  for (std::size_t i = 0; i < std::size(kHeads); ++i) {
    const std::int64_t heads = size_in(shape, kHeads[i]).value_or(*counts[i]);
    if (heads > std::numeric_limits<int>::max()) return refused(op, shape, "too many heads");
    *counts[i] = static_cast<int>(heads);
  }
  return problem->check();
}

// `count` numbers that differ by one at most, with this sum, the larger first.
void append_even(std::int64_t sum, std::int64_t count, std::vector<std::int64_t>* lengths) {
  for (std::int64_t n = 0; n < count; ++n) {
    lengths->push_back(sum / count + (n < sum % count ? 1 : 0));
  }
}

}  // namespace

Result<DecodeShape> gdn_shape(const gdn::DecodeProblem& problem, const Shape& shape) {
  CUBINERY_RETURN_IF_ERROR(check_sizes(gdn::kDecodeOp, shape, {"batch"}, {}));
  DecodeShape made{.problem = problem, .batch = *size_in(shape, "batch")};
  CUBINERY_RETURN_IF_ERROR(set_heads(gdn::kDecodeOp, shape, &made.problem));
  return made;
}

Result<PrefillShape> gdn_shape(const gdn::PrefillProblem& problem, const Shape& shape) {
  CUBINERY_RETURN_IF_ERROR(
      check_sizes(gdn::kPrefillOp, shape, {"tokens", "sequences"}, {"max_seqlen"}));
  const std::int64_t tokens = *size_in(shape, "tokens"), sequences = *size_in(shape, "sequences");
  const std::optional<std::int64_t> longest = size_in(shape, "max_seqlen");
  if (tokens < sequences) {
    return refused(gdn::kPrefillOp, shape, "every sequence has at least one token");
  }
  PrefillShape made{.problem = problem, .tokens = {}};
  CUBINERY_RETURN_IF_ERROR(set_heads(gdn::kPrefillOp, shape, &made.problem));
  if (longest) {
    const std::int64_t least = (tokens + sequences - 1) / sequences;
    const std::int64_t most = tokens - (sequences - 1);
    if (*longest < least || *longest > most) {
      return refused(gdn::kPrefillOp, shape,
                     fmt::format("max_seqlen must be from {} to {}", least, most));
    }
    made.tokens.push_back(*longest);
    append_even(tokens - *longest, sequences - 1, &made.tokens);
  } else {
    append_even(tokens, sequences, &made.tokens);
  }
  if (!problem.varlen && made.tokens.front() != made.tokens.back()) {
    return refused(gdn::kPrefillOp, shape,
                   "sequences of the problem have one length, varlen is false");
  }
  return made;
}

gdn::PrefillSize PrefillShape::size() const {
  return {.tokens = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}),
          .sequences = static_cast<std::int64_t>(tokens.size()),
          .max_seqlen = *std::max_element(tokens.begin(), tokens.end())};
}

std::size_t most_workspace_bytes(const gdn::DecodeProblem&, std::int64_t) { return 0; }

std::size_t most_workspace_bytes(const gdn::PrefillProblem& problem, const gdn::PrefillSize& size) {
  constexpr long long kAlignment = 256;
  const long long order = (size.sequences * 4 + kAlignment - 1) / kAlignment * kAlignment;
  long long most = 0;
  for (const int chunk : kChunkSizes) {
    const long long record = chunk_record(chunk, problem.dtype).bytes;
    const long long slots = chunk_slots(size.tokens, size.sequences, chunk);
    most = std::max(most, order + slots * record * problem.heads.count());
  }
  return static_cast<std::size_t>(most);
}

}  // namespace cubinery
