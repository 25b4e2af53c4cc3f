#include "runtime/gdn/prefill_plan.h"

#include <algorithm>
#include <numeric>

#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/prefill_problem.h"
#include "runtime/operator/chooser.h"
#include "runtime/operator/tuned_fields.h"
#include "tuner/choose/shape.h"

namespace cubinery::gdn {
namespace {

using Values = std::vector<TunedValue>;

constexpr std::string_view kChunks = "chunks.";
constexpr std::string_view kScan = "scan.";
constexpr std::string_view kShared = "chunk_size";  // the tuned field of both kernels

// Powers of two that have cells: 1 to 1024 sequences, 16 to 131072 tokens, 1 to 32 times the
// average.
constexpr std::size_t kSequences = 11;
constexpr std::size_t kFirstLength = 4;
constexpr std::size_t kLengths = 14;
constexpr std::size_t kSkews = 6;

constexpr std::size_t cell_at(std::size_t sequences, std::size_t length, std::size_t skew) {
  return (sequences * kLengths + length) * kSkews + skew;
}

// What choices depend on, of any size.
struct Extent {
  std::int64_t sequences = 1;
  std::int64_t length = 1;
  std::int64_t skew = 1;
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

Extent extent_of(const PrefillSize& size) {
  Extent extent;
  extent.sequences = std::max<std::int64_t>(size.sequences, 1);
  extent.length = ceil_div(std::max<std::int64_t>(size.tokens, 1), extent.sequences);
  extent.skew = std::max<std::int64_t>(ceil_div(size.max_seqlen, extent.length), 1);
  return extent;
}

Shape features_of(const PrefillProblem& problem, const Extent& extent) {
  return {{"states", extent.sequences * problem.heads()},
          {"length", extent.length},
          {"skew", extent.skew},
          {"group", problem.heads() / problem.k_heads}};
}

PrefillLoad load_of(const PrefillProblem& problem, const Extent& extent) {
  return {.sequences = extent.sequences,
          .length = extent.length,
          .longest = extent.length * extent.skew,
          .heads = problem.heads(),
          .shared_heads = shared_heads(problem)};
}

// Any keys of the problem: the fields that are not tuned.
PrefillPair any_pair(const PrefillProblem& problem, int shared_limit) {
  const PrefillKeys keys = prefill_keys(problem, shared_limit);
  return {keys.chunks, keys.scans.front()};
}

std::vector<PrefillPair> default_pairs(const PrefillProblem& problem, int shared_limit) {
  const PrefillKeys keys = prefill_keys(problem, shared_limit);
  std::vector<PrefillPair> pairs;
  for (const GdnPrefillScanKey& scan : keys.scans) pairs.push_back({keys.chunks, scan});
  return pairs;
}

bool fits(const PrefillProblem& problem, const PrefillPair& pair, int shared_limit) {
  return valid(pair.chunks) && valid(pair.scan) && pair.chunks.chunk_size == pair.scan.chunk_size &&
         shared_bytes(pair.chunks) <= shared_limit && shared_bytes(pair.scan) <= shared_limit &&
         (problem.checkpoints == Checkpoints::kNone ||
          problem.checkpoint_every % pair.scan.chunk_size == 0);
}

// "chunks.key_dim=128;chunks.dtype=bf16": the fields that are not tuned.
template <class Key>
std::string prefixed_fixed_text(std::string_view prefix, const Key& key) {
  std::string text;
  for (const FieldText& field : field_texts(key)) {
    if (field.is_tuned) continue;
    if (!text.empty()) text += ';';
    text.append(prefix).append(field.name).append("=").append(field.value);
  }
  return text;
}

std::string fixed_text_of(const PrefillPair& pair) {
  return prefixed_fixed_text(kChunks, pair.chunks) + ";" + prefixed_fixed_text(kScan, pair.scan);
}

// The fields that decide what is fast.  How a state lies in memory does not: it is read and written
// once for a whole sequence.
std::vector<std::string> prefill_outline() {
  return {"chunks.key_dim", "chunks.dtype", "scan.key_dim", "scan.value_dim", "scan.dtype"};
}

// Appends the tuned values of a key, those that kernels share only once.
template <class Key>
void add_values(std::string_view prefix, const Key& key, Values* values) {
  for (TunedValue& value : tuned_values(key)) {
    if (value.name != kShared) {
      value.name.insert(0, prefix);
    } else if (!values->empty()) {
      continue;
    }
    values->push_back(std::move(value));
  }
}

// Fills the cells of one plan.
class Filler {
 public:
  Filler(const PrefillProblem& problem, int shared_limit, const GpuRates& gpu, Chooser chooser)
      : problem_(problem), gpu_(gpu), chooser_(std::move(chooser)) {
    for (const Values& values : chooser_.options()) {
      options_.push_back(
          prefill_pair(problem, values, shared_limit).value_or(any_pair(problem, shared_limit)));
    }
    places_.resize(options_.size());
  }

  PrefillPlan fill() {
    plan_.cells.resize(kSequences * kLengths * kSkews);
    for (std::size_t n = 0; n < kSequences; ++n) {
      for (std::size_t length = 0; length < kLengths; ++length) {
        // No sequence is longer than all of them; dense ones are equally long.
        const std::size_t most = problem_.varlen ? std::min(n, kSkews - 1) : 0;
        for (std::size_t skew = 0; skew < kSkews; ++skew) {
          plan_.cells[cell_at(n, length, skew)] =
              skew <= most ? cell(n, length, skew) : plan_.cells[cell_at(n, length, most)];
        }
      }
    }
    plan_.choices = chooser_.choices();
    return std::move(plan_);
  }

 private:
  PrefillPlan::Cell cell(std::size_t sequences, std::size_t length, std::size_t skew) {
    const auto power = [](std::size_t exponent) { return std::int64_t{1} << exponent; };
    const Extent extent{power(sequences), power(kFirstLength + length), power(skew)};
    const PrefillLoad load = load_of(problem_, extent);
    const Chooser::Pick pick =
        chooser_.pick(features_of(problem_, extent), [&](std::size_t option) {
          return prefill_us(options_[option].chunks, options_[option].scan, load, gpu_);
        });
    std::optional<PrefillPlan::Cell>& place = places_[pick.option];
    if (!place) {
      const PrefillPair& pair = options_[pick.option];
      place = {.chunks = static_cast<std::uint8_t>(place_of(pair.chunks, &plan_.chunks)),
               .scan = static_cast<std::uint8_t>(place_of(pair.scan, &plan_.scans))};
    }
    plan_.uses_results |= chooser_.choices()[pick.choice].rung != Rung::kDefault;
    PrefillPlan::Cell cell = *place;
    cell.chosen = static_cast<std::uint16_t>(pick.choice);
    return cell;
  }

  const PrefillProblem& problem_;
  const GpuRates& gpu_;
  Chooser chooser_;
  std::vector<PrefillPair> options_;
  std::vector<std::optional<PrefillPlan::Cell>> places_;  // of options_, once they are used
  PrefillPlan plan_;
};

}  // namespace

TuningSpace prefill_space(const PrefillProblem& problem, int shared_limit) {
  const PrefillPair any = any_pair(problem, shared_limit);
  TuningSpace space{.op = std::string(kPrefillOp),
                    .fixed = fixed_text_of(any),
                    .configurations = {},
                    .outline = prefill_outline()};
  for_each_candidate(any.chunks, [&](const GdnPrefillChunksKey& chunks) {
    for_each_candidate(any.scan, [&](const GdnPrefillScanKey& scan) {
      const PrefillPair pair{chunks, scan};
      if (!fits(problem, pair, shared_limit)) return;
      space.configurations.push_back({prefill_values(pair), {*spec_of(chunks), *spec_of(scan)}});
    });
  });
  return space;
}

Shape prefill_features(const PrefillProblem& problem, const PrefillSize& size) {
  return features_of(problem, extent_of(size));
}

Values prefill_values(const PrefillPair& pair) {
  Values values;
  add_values(kChunks, pair.chunks, &values);
  add_values(kScan, pair.scan, &values);
  return values;
}

std::optional<PrefillPair> prefill_pair(const PrefillProblem& problem, const Values& values,
                                        int shared_limit) {
  PrefillPair pair = any_pair(problem, shared_limit);
  if (!set_tuned_fields(values, kChunks, &pair.chunks) ||
      !set_tuned_fields(values, kScan, &pair.scan) || !fits(problem, pair, shared_limit)) {
    return std::nullopt;
  }
  return pair;
}

Question prefill_question(const PrefillProblem& problem, const GpuIdentity& gpu,
                          const Toolchain& toolchain, int shared_limit) {
  return {.op = std::string(kPrefillOp),
          .fixed = fixed_text_of(any_pair(problem, shared_limit)),
          .outline = prefill_outline(),
          .gpu = gpu,
          .toolchain = toolchain,
          .usable = [problem, shared_limit](const Values& values) {
            const auto usable = prefill_pair(problem, values, shared_limit);
            return usable && prefill_values(*usable) == values;
          }};
}

int shared_heads(const PrefillProblem& problem) {
  const int group = std::gcd(problem.heads() / problem.q_heads, problem.heads() / problem.k_heads);
  int shared = std::min(group, kMaxHeadsPerBlock);
  while (group % shared != 0) --shared;
  return shared;
}

std::size_t PrefillPlan::index(const PrefillSize& size) {
  const Extent extent = extent_of(size);
  const std::size_t length = std::max(nearest_log2(extent.length), kFirstLength) - kFirstLength;
  return cell_at(std::min(nearest_log2(extent.sequences), kSequences - 1),
                 std::min(length, kLengths - 1), std::min(nearest_log2(extent.skew), kSkews - 1));
}

const PrefillPlan::Cell& PrefillPlan::cell(const PrefillSize& size) const {
  return cells[cells.size() == 1 ? 0 : index(size)];
}

PrefillPair PrefillPlan::pair(const PrefillSize& size) const {
  return {chunks[cell(size).chunks], scans[cell(size).scan]};
}

PrefillPlan prefill_plan(const PrefillProblem& problem, int shared_limit, const GpuRates& gpu,
                         const Answers* answers, std::string_view why_not) {
  std::vector<Values> defaults;
  for (const PrefillPair& pair : default_pairs(problem, shared_limit)) {
    defaults.push_back(prefill_values(pair));
  }
  Chooser chooser(std::move(defaults), answers, why_not);
  return Filler(problem, shared_limit, gpu, std::move(chooser)).fill();
}

PrefillPlan prefill_plan(const PrefillPair& pair) {
  return {
      .chunks = {pair.chunks},
      .scans = {pair.scan},
      .choices = {{.configuration = to_text(prefill_values(pair)), .why = "chosen by the caller"}},
      .cells = {{}}};
}

PrefillPlanKeys prefill_plan_keys(const PrefillProblem& problem, std::string_view arch,
                                  int shared_limit, const std::vector<TuningResult>& results,
                                  const std::string& templates) {
  PrefillPlanKeys keys;
  const auto add = [&](const PrefillPair& pair) {
    place_of(pair.chunks, &keys.chunks);
    place_of(pair.scan, &keys.scans);
  };
  for (const PrefillPair& pair : default_pairs(problem, shared_limit)) add(pair);
  GpuIdentity gpu;
  gpu.arch = arch;
  const Question question = prefill_question(problem, gpu, {{}, templates}, shared_limit);
  for (const Values& values : possible_configurations(question, results)) {
    if (const auto pair = prefill_pair(problem, values, shared_limit)) add(*pair);
  }
  return keys;
}

}  // namespace cubinery::gdn
