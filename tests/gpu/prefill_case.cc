#include "tests/gpu/prefill_case.h"

#include <cmath>
#include <cstring>
#include <mutex>
#include <sstream>

#include "tuner/gdn/gdn_tensors.h"
#include "tuner/gdn/rounding.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;

// The reference goes by spans of this many tokens: whole chunks of every size.
constexpr std::int64_t kSpan = 1024;
// The chunk of the yardstick.
constexpr int kChunk = 32;  // as the operator chooses for most problems

std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

std::string PrefillShape::text() const {
  std::ostringstream out;
  out << lengths.size() << " sequences of tokens";
  for (const std::int64_t length : lengths) out << ' ' << length;
  out << ", lead " << lead << ", tail " << tail << ", spare checkpoints " << spare_checkpoints;
  return out.str();
}

PrefillShape uniform(std::int64_t count, std::int64_t tokens) {
  return {.lengths = std::vector<std::int64_t>(idx(count), tokens)};
}

std::vector<Tensor*> token_tensors(gdn::PrefillArgs* args) {
  return {&args->q, &args->k, &args->v, &args->g, &args->beta, &args->o};
}

gdn::PrefillArgs PrefillCase::args() const {
  gdn::PrefillArgs args;
  args.q = q_.view;
  args.k = k_.view;
  args.v = v_.view;
  args.g = gate_.view;
  args.beta = beta_.view;
  args.A_log = a_log_.view;
  args.dt_bias = dt_bias_.view;
  args.o = o_.view;
  args.cu_seqlens = cu_seqlens_.view;
  states_.bind(&args);
  args.checkpoints = checkpoints_.view;
  args.checkpoint_cu_starts = checkpoint_cu_starts_.view;
  args.scale = options_.scale;
  args.programmatic = options_.programmatic;
  return args;
}

gdn::PrefillArgs PrefillCase::args(std::int64_t first, std::int64_t count) const {
  gdn::PrefillArgs args = this->args();
  states_.bind(&args, first, count);
  if (problem_.varlen) {
    slice(&args.cu_seqlens, 0, first, count + 1);
    slice(&args.checkpoint_cu_starts, 0, first, count + 1);
    return args;
  }
  for (Tensor* tensor : token_tensors(&args)) slice(tensor, 0, first, count);
  slice(&args.checkpoints, 0, first * checkpoints_of(problem_, tokens_),
        count * checkpoints_of(problem_, tokens_));
  return args;
}

gdn::PrefillSize PrefillCase::size(const gdn::PrefillArgs& args) const {
  const std::int64_t tokens = args.q.shape[static_cast<std::size_t>(token_dimension())];
  if (problem_.varlen) return {.tokens = tokens, .sequences = args.cu_seqlens.shape[0] - 1};
  return {.tokens = args.q.shape[0] * tokens, .sequences = args.q.shape[0]};
}

std::vector<const Operand*> PrefillCase::operands() const {
  std::vector<const Operand*> all{&q_,
                                  &k_,
                                  &v_,
                                  &gate_,
                                  &beta_,
                                  &a_log_,
                                  &dt_bias_,
                                  &o_,
                                  &cu_seqlens_,
                                  &checkpoints_,
                                  &checkpoint_cu_starts_};
  for (const Operand* operand : states_.operands()) all.push_back(operand);
  return all;
}

Results PrefillCase::download() const {
  Results results{.o = test::download(o_), .checkpoints = test::download(checkpoints_)};
  states_.download(&results);
  return results;
}

std::int64_t PrefillCase::start(std::int64_t n) const { return load_index(cu_seqlens_, n); }

std::int64_t PrefillCase::length(std::int64_t n) const {
  return problem_.varlen ? start(n + 1) - start(n) : tokens_;
}

bool PrefillCase::malformed() const {
  if (!problem_.varlen) return false;
  bool malformed = start(0) < 0 || start(sequences_) > tokens_;
  for (std::int64_t n = 0; n < sequences_; ++n) malformed |= start(n + 1) < start(n);
  return malformed;
}

std::size_t PrefillCase::row_offset(const Operand& operand, std::int64_t n, std::int64_t t,
                                    std::int64_t h) const {
  return problem_.varlen ? operand.token_offset(0, start(n) + t, h) : operand.token_offset(n, t, h);
}

std::int64_t PrefillCase::first_checkpoint(std::int64_t n) const {
  return problem_.varlen ? load_index(checkpoint_cu_starts_, n)
                         : n * checkpoints_of(problem_, tokens_);
}

Row PrefillCase::row(std::int64_t n) const {
  if (malformed()) return {RowKind::kInvalid, 0, 0};
  const Row row = states_.row(n);
  if (problem_.checkpoints == Checkpoints::kNone || !problem_.varlen) return row;
  if (row.kind == RowKind::kSkipped || row.kind == RowKind::kZeroed) return row;
  const std::int64_t first = first_checkpoint(n), end = first_checkpoint(n + 1);
  const bool fits = first >= 0 && end <= checkpoints_.view.shape[0] &&
                    end - first >= checkpoints_of(problem_, length(n));
  return fits ? row : Row{RowKind::kInvalid, 0, 0};
}

template <class Real>
gdn::PrefillRefHead<Real> PrefillCase::head(std::int64_t n, std::int64_t h, std::int64_t first,
                                            std::int64_t last) const {
  gdn::PrefillRefHead<Real> head{.key_dim = problem_.key_dim,
                                 .value_dim = problem_.value_dim,
                                 .gate_mode = problem_.gate_mode,
                                 .beta_mode = problem_.beta_mode,
                                 .use_qk_l2norm = problem_.use_qk_l2norm};
  head.scale = options_.scale ? static_cast<Real>(*options_.scale)
                              : 1 / std::sqrt(static_cast<Real>(problem_.key_dim));
  const auto append = [&](const Operand& operand, std::int64_t heads, int width,
                          std::vector<Real>* to) {
    if (!operand.storage) return;
    const int size = size_of(operand.view.dtype);
    to->reserve(idx((last - first) * width));
    for (std::int64_t t = first; t < last; ++t) {
      const std::byte* row =
          operand.storage->bytes.data() + row_offset(operand, n, t, h / (heads_ / heads));
      for (int d = 0; d < width; ++d) to->push_back(load(operand.view.dtype, row + d * size));
    }
  };
  append(q_, problem_.q_heads, problem_.key_dim, &head.q);
  append(k_, problem_.k_heads, problem_.key_dim, &head.k);
  append(v_, problem_.v_heads, problem_.value_dim, &head.v);
  append(gate_, heads_, 1, &head.gate);
  append(beta_, heads_, 1, &head.beta);
  if (a_log_.storage) head.a_log = load(a_log_.view.dtype, a_log_.at(h, 0));
  if (dt_bias_.storage) head.dt_bias = load(dt_bias_.view.dtype, dt_bias_.at(h, 0));
  return head;
}

Verdict PrefillCase::check(const Results& results) const {
  Verdict verdict;
  std::mutex mutex;
  parallel_for(sequences_ * heads_, [&](std::int64_t unit) {
    const std::int64_t n = unit / heads_;
    if (row(n).kind != RowKind::kComputed) return;
    Verdict one;
    check_head(n, unit % heads_, results, &one);
    const std::scoped_lock lock(mutex);
    verdict.o.merge(one.o);
    verdict.state.merge(one.state);
    verdict.checkpoints.merge(one.checkpoints);
  });
  for (std::int64_t n = 0; n < sequences_ && verdict.fault.empty(); ++n) {
    verdict.fault = check_rows(n, results);
  }
  if (verdict.fault.empty()) verdict.fault = check_untouched(results);
  return verdict;
}

// Goes through the sequence by spans between checkpoints.
void PrefillCase::check_head(std::int64_t n, std::int64_t h, const Results& results,
                             Verdict* verdict) const {
  std::vector<double> state = states_.initial<double>(n, h);
  std::vector<float> naive_state = states_.initial<float>(n, h);
  const bool keeps = problem_.checkpoints != Checkpoints::kNone;
  const std::int64_t span = keeps ? problem_.checkpoint_every : kSpan;
  const auto compare_checkpoint = [&](Checkpoints when, std::int64_t number) {
    if (problem_.checkpoints != when) return;
    states_.compare(checkpoints_, results.checkpoints, first_checkpoint(n) + number, naive_state,
                    state, {n, h, number}, &verdict->checkpoints);
  };
  for (std::int64_t first = 0; first < length(n); first += span) {
    const std::int64_t last = std::min(first + span, length(n));
    compare_checkpoint(Checkpoints::kBefore, first / span);
    check_span(results, n, h, first, last, &state, &naive_state, &verdict->o);
    if (last - first == span) compare_checkpoint(Checkpoints::kAfter, first / span);
  }
  const std::int64_t slot = row(n).write;
  if (slot == kNowhere) return;
  states_.compare(states_.target(), states_.target_of(results), slot, naive_state, state, {n, h},
                  &verdict->state);
}

void PrefillCase::check_span(const Results& results, std::int64_t n, std::int64_t h,
                             std::int64_t first, std::int64_t last, std::vector<double>* state,
                             std::vector<float>* naive_state, Comparison* o) const {
  const std::int64_t width = problem_.value_dim;
  std::vector<double> expected(idx((last - first) * width));
  std::vector<float> naive(expected.size());
  gdn_prefill_ref(head<double>(n, h, first, last), state->data(), expected.data());
  gdn_prefill_chunked_ref(
      head<float>(n, h, first, last), kChunk,
      [&](float x) { return rounded_operand(problem_.dtype, x); }, naive_state->data(),
      naive.data());
  for (std::int64_t t = first; t < last; ++t) {
    const std::vector<float> actual = o_row(results, n, t, h);
    for (std::int64_t d = 0; d < width; ++d) {
      const std::size_t e = idx((t - first) * width + d);
      o->add(actual[idx(d)], rounded(o_.view.dtype, naive[e]), expected[e], {n, h, t, d, 0});
    }
  }
}

std::vector<float> PrefillCase::o_row(const Results& results, std::int64_t n, std::int64_t t,
                                      std::int64_t h) const {
  std::vector<float> row(idx(problem_.value_dim));
  const std::byte* from = results.o.data() + row_offset(o_, n, t, h);
  for (float& value : row) {
    value = load(o_.view.dtype, from);
    from += size_of(o_.view.dtype);
  }
  return row;
}

// The rows of sequences whose outputs are not computed from their own slot.
std::string PrefillCase::check_rows(std::int64_t n, const Results& results) const {
  const RowKind kind = row(n).kind;
  if (kind == RowKind::kComputed || kind == RowKind::kSkipped) return "";
  // Of a malformed batch every token is invalid, also those of no sequence.
  const std::int64_t begin = malformed() ? -start(n) : 0;
  const std::int64_t end = malformed() ? tokens_ - start(n) : length(n);
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t h = 0; h < heads_; ++h) {
      const std::string fault = output_fault(kind, o_row(results, n, t, h), n, h);
      if (!fault.empty()) return fault + ", token " + std::to_string(t);
    }
  }
  return "";
}

std::string PrefillCase::check_untouched(const Results& results) const {
  Results expected{.o = o_.storage->bytes};
  if (checkpoints_.storage) expected.checkpoints = checkpoints_.storage->bytes;
  states_.before(&expected);
  const std::int64_t o_bytes = problem_.value_dim * size_of(o_.view.dtype);
  if (malformed()) {
    for (std::int64_t unit = 0; unit < tokens_ * heads_; ++unit) {
      forgive(results.o, &expected.o, o_.token_offset(0, unit / heads_, unit % heads_), o_bytes);
    }
    return first_difference(results, expected);
  }
  for (std::int64_t n = 0; n < sequences_; ++n) {
    if (row(n).kind != RowKind::kSkipped) {
      for (std::int64_t unit = 0; unit < length(n) * heads_; ++unit) {
        forgive(results.o, &expected.o, row_offset(o_, n, unit / heads_, unit % heads_), o_bytes);
      }
    }
    forgive_written(n, results, &expected);
  }
  return first_difference(results, expected);
}

// Forgives the state and the checkpoints that sequence n writes.
void PrefillCase::forgive_written(std::int64_t n, const Results& results, Results* expected) const {
  const Row row = this->row(n);
  states_.forgive_written(row, results, expected);
  if (row.kind != RowKind::kComputed && row.kind != RowKind::kShared) return;
  for (std::int64_t unit = 0; unit < checkpoints_of(problem_, length(n)) * heads_; ++unit) {
    forgive(results.checkpoints, &expected->checkpoints,
            checkpoints_.offset(first_checkpoint(n) + unit / heads_, unit % heads_),
            states_.matrix_bytes());
  }
}

bool PrefillCase::same_head(std::int64_t n, std::int64_t h, const Results& a,
                            const Results& b) const {
  const std::size_t row_bytes = idx(problem_.value_dim) * idx(size_of(problem_.output_dtype));
  for (std::int64_t t = 0; t < length(n); ++t) {
    const std::size_t at = row_offset(o_, n, t, h);
    if (std::memcmp(a.o.data() + at, b.o.data() + at, row_bytes) != 0) return false;
  }
  const Row row = this->row(n);
  if (!row.writes()) return true;
  const std::size_t at = states_.target().offset(row.write, h);
  return std::memcmp(states_.target_of(a).data() + at, states_.target_of(b).data() + at,
                     idx(states_.matrix_bytes())) == 0;
}

bool PrefillCase::same_sequence(std::int64_t n, const Results& a, const Results& b) const {
  for (std::int64_t h = 0; h < heads_; ++h) {
    if (!same_head(n, h, a, b)) return false;
  }
  return true;
}

}  // namespace cubinery::test
