// One decode step with random operands: how they lie, what the reference makes of them, and how far
// the operator's results may be from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "templates/gdn_decode/gdn_decode_ref.h"
#include "tests/gpu/gdn_case.h"
#include "tests/gpu/state_case.h"

namespace cubinery::test {

class DecodeCase {
 public:
  using Operator = gdn::Decode;

  DecodeCase(const Gpu& gpu, const gdn::DecodeProblem& problem, std::int64_t batch,
             const CaseOptions& options = {});

  const gdn::DecodeProblem& problem() const { return problem_; }
  const CaseOptions& options() const { return options_; }
  std::int64_t batch() const { return batch_; }
  gdn::DecodeArgs args() const;
  // The same for requests first ... first + count - 1 alone.
  gdn::DecodeArgs args(std::int64_t first, std::int64_t count) const;

  // Sends all bytes (again): outputs become NaN.
  void upload() const { test::upload(operands()); }
  Results download() const;
  bool guards_intact() const { return test::guards_intact(operands()); }

  // Compares with the reference; bytes that no request may write must be as they were.
  Verdict check(const Results& results) const;

  // Operands of a head as the reference takes them.
  template <class Real>
  gdn::DecodeRefHead<Real> head(std::int64_t n, std::int64_t h) const;

  const Operand& q() const { return q_; }
  const Operand& k() const { return k_; }
  const Operand& v() const { return v_; }
  const Operand& gate() const { return gate_; }
  const Operand& beta() const { return beta_; }
  const Operand& o() const { return o_; }
  const Operand& state() const { return states_.state(); }
  const StateCase& states() const { return states_; }

 private:
  void make_tensors();
  void fill_rows();
  void fill_gates();
  Operand tensor(DType dtype, std::int64_t heads, std::int64_t dim) const;
  std::vector<const Operand*> operands() const;
  void check_head(std::int64_t n, std::int64_t h, const Results& results, Verdict* verdict) const;
  std::string check_row(std::int64_t n, const Results& results) const;
  std::string check_untouched(const Results& results) const;

  const Gpu& gpu_;
  gdn::DecodeProblem problem_;
  CaseOptions options_;
  std::int64_t batch_;
  std::int64_t heads_;
  StateCase states_;
  Operand q_, k_, v_, gate_, beta_, a_log_, dt_bias_, o_;
};

}  // namespace cubinery::test
