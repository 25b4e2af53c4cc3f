// The states of a case: where they lie, which of them each request reads and writes, and which
// bytes nobody may write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/gdn_case.h"

namespace cubinery::test {

// What a problem says about states, decode's and prefill's alike.
struct StateRules {
  template <class Problem>
  explicit StateRules(const Problem& p)
      : heads(p.heads()),
        key_dim(p.key_dim),
        value_dim(p.value_dim),
        dtype(p.state_dtype),
        index_dtype(p.index_dtype),
        layout(p.state_layout),
        pool(p.state_location == gdn::StateLocation::kPool),
        padding(p.padding),
        pad_index(p.pad_index),
        has_initial_state(p.has_initial_state),
        store_state(p.store_state) {}

  int heads, key_dim, value_dim;
  DType dtype, index_dtype;
  gdn::StateLayout layout;
  bool pool;
  gdn::Padding padding;
  gdn::PadIndex pad_index;
  bool has_initial_state, store_state;
};

// What request n is expected to do.  kShared: one of several requests that work on the scratch slot
// at once; only finite values are promised.
enum class RowKind { kComputed, kSkipped, kZeroed, kInvalid, kShared };
inline constexpr std::int64_t kNowhere = -1;  // as a slot to write: the new state is dropped
struct Row {
  RowKind kind = RowKind::kComputed;
  std::int64_t read = 0;
  std::int64_t write = 0;

  bool writes() const {
    return (kind == RowKind::kComputed || kind == RowKind::kShared) && write != kNowhere;
  }
};

class StateCase {
 public:
  StateCase(const Gpu& gpu, const StateRules& rules, std::int64_t batch,
            const CaseOptions& options);

  // A tensor of matrices, [rows, heads, ...] with the case's gap between heads.
  Operand matrices(const Gpu& gpu, std::int64_t rows, std::int64_t row_gap) const;
  std::int64_t matrix_elements() const { return std::int64_t{rules_.key_dim} * rules_.value_dim; }
  std::int64_t matrix_bytes() const { return matrix_elements() * size_of(rules_.dtype); }

  template <class Args>
  void bind(Args* args) const {
    args->state = state_.view;
    args->state_out = state_out_.view;
    args->state_indices = read_.view;
    args->state_out_indices = write_.view;
    args->scratch_slot = scratch_slot_;
  }
  // The same for requests first ... first + count - 1 alone.
  template <class Args>
  void bind(Args* args, std::int64_t first, std::int64_t count) const {
    slice(&args->state_indices, 0, first, count);
    slice(&args->state_out_indices, 0, first, count);
    if (rules_.pool) return;
    slice(&args->state, 0, first, count);
    slice(&args->state_out, 0, first, count);
  }
  std::vector<const Operand*> operands() const { return {&state_, &state_out_, &read_, &write_}; }

  Row row(std::int64_t n) const;
  const Operand& state() const { return state_; }
  // Where new states go: state_out, or state.
  const Operand& target() const { return state_out_.storage ? state_out_ : state_; }
  const std::vector<std::byte>& target_of(const Results& results) const {
    return state_out_.storage ? results.state_out : results.state;
  }

  // A stored state as [key_dim][value_dim].
  template <class Real>
  std::vector<Real> matrix(const Operand& tensor, const std::vector<std::byte>& bytes,
                           std::int64_t slot, std::int64_t h) const;
  // The state that request n starts from.
  template <class Real>
  std::vector<Real> initial(std::int64_t n, std::int64_t h) const;
  // Compares a stored state with what naive arithmetic and the reference end with.  `at`: request,
  // head and span.
  void compare(const Operand& tensor, const std::vector<std::byte>& bytes, std::int64_t slot,
               const std::vector<float>& naive, const std::vector<double>& expected,
               Comparison::Index at, Comparison* comparison) const;

  void download(Results* results) const;
  // The bytes before the launch.
  void before(Results* results) const;
  // Forgives the state that a request in `row` writes.
  void forgive_written(const Row& row, const Results& results, Results* expected) const;

 private:
  void make_indices(const Gpu& gpu, const CaseOptions& options);
  void fill(const CaseOptions& options);
  std::int64_t matrix_offset(std::int64_t i, std::int64_t j) const;

  StateRules rules_;
  std::int64_t batch_;
  std::int64_t slots_;
  std::int64_t scratch_slot_;
  std::int64_t head_gap_;
  Operand state_, state_out_, read_, write_;
};

// What is wrong with the output rows of a request whose values are not compared: `values` come from
// head h.  Empty when nothing is.
std::string output_fault(RowKind kind, const std::vector<float>& values, std::int64_t n,
                         std::int64_t h);

}  // namespace cubinery::test
