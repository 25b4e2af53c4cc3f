// One prefill with random operands: how they lie, what the reference makes of them, and how far the
// operator's results may be from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "templates/gdn_prefill_scan/gdn_prefill_ref.h"
#include "tests/gpu/gdn_case.h"
#include "tests/gpu/state_case.h"

namespace cubinery::test {

struct PrefillShape {
  std::vector<std::int64_t> lengths{};  // of the sequences, in tokens; dense: all the same
  // Varlen: tokens before the first and behind the last sequence.  They are NaN.
  std::int64_t lead = 0;
  std::int64_t tail = 0;
  std::int64_t spare_checkpoints = 0;  // varlen: rows behind those that a sequence keeps

  std::string text() const;
};

// `count` sequences of `tokens` tokens.
PrefillShape uniform(std::int64_t count, std::int64_t tokens);

// q, k, v, g, beta and o.
std::vector<Tensor*> token_tensors(gdn::PrefillArgs* args);

class PrefillCase {
 public:
  using Operator = gdn::Prefill;

  PrefillCase(const Gpu& gpu, const gdn::PrefillProblem& problem, const PrefillShape& shape,
              const CaseOptions& options = {});

  const gdn::PrefillProblem& problem() const { return problem_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t length(std::int64_t n) const;
  gdn::PrefillArgs args() const;
  // The same for sequences first ... first + count - 1 alone.
  gdn::PrefillArgs args(std::int64_t first, std::int64_t count) const;
  // Which dimension of the tensors of tokens counts them.
  int token_dimension() const;
  gdn::PrefillSize size(const gdn::PrefillArgs& args) const;

  // Sends all bytes (again): outputs become NaN.
  void upload() const { test::upload(operands()); }
  Results download() const;
  bool guards_intact() const { return test::guards_intact(operands()); }
  // Makes sequence n what `from` has as sequence `other` of the same length.
  void take_sequence(std::int64_t n, const PrefillCase& from, std::int64_t other) const;

  // What sequence n is expected to do, its state and the checks of its indices.
  Row row(std::int64_t n) const;
  // Compares with the reference; bytes that no sequence may write must be as they were.
  Verdict check(const Results& results) const;
  // Whether o of sequence n, head h and its stored state have the same bits in both.
  bool same_head(std::int64_t n, std::int64_t h, const Results& a, const Results& b) const;
  bool same_sequence(std::int64_t n, const Results& a, const Results& b) const;
  // The row of o as floats.
  std::vector<float> o_row(const Results& results, std::int64_t n, std::int64_t t,
                           std::int64_t h) const;

  // Byte offset of row t of sequence n.
  std::size_t row_offset(const Operand& operand, std::int64_t n, std::int64_t t,
                         std::int64_t h) const;

  const Operand& q() const { return q_; }
  const Operand& k() const { return k_; }
  const Operand& v() const { return v_; }
  const Operand& gate() const { return gate_; }
  const Operand& beta() const { return beta_; }
  const Operand& o() const { return o_; }
  const Operand& state() const { return states_.state(); }
  const Operand& cu_seqlens() const { return cu_seqlens_; }
  const Operand& checkpoint_cu_starts() const { return checkpoint_cu_starts_; }
  const StateCase& states() const { return states_; }

 private:
  void make_tensors(const PrefillShape& shape);
  void make_checkpoints(const PrefillShape& shape);
  void pack_rows();
  void set_strides(Operand* operand, std::int64_t heads, std::int64_t width) const;
  Operand tensor(DType dtype, std::int64_t heads, std::int64_t dim) const;
  Operand starts(const std::vector<std::int64_t>& values) const;
  void fill_rows();
  void fill_gates();
  std::vector<const Operand*> operands() const;

  std::int64_t start(std::int64_t n) const;  // varlen: its first token
  bool malformed() const;
  std::int64_t first_checkpoint(std::int64_t n) const;

  // Operands of a head's tokens first ... last - 1 as the reference takes them.
  template <class Real>
  gdn::PrefillRefHead<Real> head(std::int64_t n, std::int64_t h, std::int64_t first,
                                 std::int64_t last) const;
  void check_head(std::int64_t n, std::int64_t h, const Results& results, Verdict* verdict) const;
  void check_span(const Results& results, std::int64_t n, std::int64_t h, std::int64_t first,
                  std::int64_t last, std::vector<double>* state, std::vector<float>* naive_state,
                  Comparison* o) const;
  std::string check_rows(std::int64_t n, const Results& results) const;
  std::string check_untouched(const Results& results) const;
  void forgive_written(std::int64_t n, const Results& results, Results* expected) const;
  bool packed_rank3() const;

  const Gpu& gpu_;
  gdn::PrefillProblem problem_;
  CaseOptions options_;
  std::int64_t sequences_;
  std::int64_t batch_;   // of the tensors of tokens: sequences, or 1
  std::int64_t tokens_;  // of the tensors of tokens, in each of the batch
  std::int64_t heads_;
  StateCase states_;
  Operand q_, k_, v_, gate_, beta_, a_log_, dt_bias_, o_;
  Operand cu_seqlens_, checkpoints_, checkpoint_cu_starts_;
};

}  // namespace cubinery::test
