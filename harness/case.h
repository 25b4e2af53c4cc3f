// One small launch with random operands, on the host: how they lie, what the reference makes of
// them, and how far an operator's results may be from it.  Tests, the tuner, benchmarks and doctor
// all check with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gdn_prefill_scan/gdn_prefill_ref.h"
#include "harness/data.h"
#include "harness/deviation.h"
#include "harness/layout.h"

namespace cubinery {

struct CaseShape {
  std::vector<std::int64_t> lengths{};  // of the sequences, in tokens; dense: all the same
  // Packed: tokens before the first and behind the last sequence.  They are NaN.
  std::int64_t lead = 0;
  std::int64_t tail = 0;
  std::int64_t spare_checkpoints = 0;  // packed: rows behind those that a sequence keeps

  std::string text() const;
};

// `count` sequences of `tokens` tokens.
CaseShape uniform(std::int64_t count, std::int64_t tokens);

struct CaseOptions {
  std::uint64_t seed = 1;
  GateDistribution gates = GateDistribution::kQwen;
  Placement placement = Placement::kContiguous;
  double key_correlation = 0;  // of keys of one head, over tokens, sequences and seeds
  std::optional<float> scale{};
  std::optional<float> norm_eps{};
  float lower_bound = kLowerBound;
  bool bare_gates = false;  // without A_log and dt_bias where that may be
  bool enable_pdl = false;

  // As in LayoutOptions.
  std::int64_t head_gap = 0;
  std::int64_t slot_gap = 0;
  bool separate_out = false;  // state_out is a tensor of its own
  std::int64_t out_slot_gap = 0;

  // StateLocation::kPool.  Empty `read`: random distinct slots other than 0.
  bool write_indices = false;  // distinct write slots, also distinct from those read
  std::vector<std::int64_t> read{};
  std::vector<std::int64_t> write{};
  std::int64_t slots = 0;  // 0: a few more than needed
  Padding padding{};
  // The sequence that is padding where there is any.  Packed, it has no room for checkpoints that
  // it does not keep.
  std::int64_t padded = -1;

  // Of prefills whose problem has_initial: every so many-th sequence starts from zero, and its
  // state is NaN; 1: all; 0: none, and there are no flags.
  std::int64_t fresh_every = 0;
  // Tokens from one checkpoint to the next; absent: the problem's.
  std::optional<std::int64_t> checkpoint_every{};

  // Checkpoints::kAt: of each sequence so many, some of which are none.  Where they are empty,
  // offsets and slots are drawn; else they are those of sequence 0, then of sequence 1 and so on.
  std::int64_t offsets = 2;
  std::vector<std::int64_t> checkpoint_offsets{};
  std::vector<std::int64_t> checkpoint_slots{};
  bool checkpoints_in_pool = false;  // they go where new states go, to slots of their own

  // Sequences are random trees, by parents of this dtype.
  std::optional<DType> parents{};

  // Of the naive arithmetic that makes the budget; 0: it goes token by token, as decode does.
  int chunk_size = 32;            // as the operator chooses for most problems
  bool round_each_token = false;  // the state, to its dtype
  bool has_outputs = true;        // false: o is left alone

  DataOptions data() const {
    return {.seed = seed, .gates = gates, .key_correlation = key_correlation};
  }
};

// What sequence n is expected to do.  kShared: one of several that work on the scratch slot at
// once; only finite values are promised.  kInvalid: an index, a range or a parent that cannot be.
enum class RowKind { kComputed, kSkipped, kZeroed, kInvalid, kShared };
inline constexpr std::int64_t kNowhere = -1;  // as a slot to write: the new state is dropped
struct Row {
  RowKind kind = RowKind::kComputed;
  std::int64_t read = 0;
  std::int64_t write = 0;

  bool runs() const { return kind == RowKind::kComputed || kind == RowKind::kShared; }
  bool writes() const { return runs() && write != kNowhere; }
};

// How far the results of a launch are from the reference.
struct GdnDeviations {
  Deviation o{}, state{}, checkpoints{};
  void merge(const GdnDeviations& other);
  bool ok() const { return o.ok() && state.ok() && checkpoints.ok(); }
};

// What the reference makes of one sequence and head, and what naive arithmetic loses.
struct GdnReference {
  std::vector<double> o{};            // [length][value_dim]
  std::vector<double> state{};        // [key_dim][value_dim]
  std::vector<double> checkpoints{};  // [count][key_dim][value_dim]
  GdnDeviations naive{};
};

struct GdnVerdict {
  GdnDeviations errors{};
  // The first violation that is no matter of tolerance: rows that should be zero, NaN or finite and
  // are not, and bytes that changed and are nobody's to write.  Empty when there is none.
  std::string fault{};
  bool ok() const { return errors.ok() && fault.empty(); }
};

class GdnCase {
 public:
  using Place = GdnLayout::Place;

  // The same options give the same numbers to every sequence and head, however they lie.
  GdnCase(const GdnProblem& problem, const CaseShape& shape, const CaseOptions& options = {});

  const GdnProblem& problem() const { return problem_; }
  const CaseOptions& options() const { return options_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t length(std::int64_t n) const;
  std::size_t token_dimension() const { return layout_.token_dimension(); }

  // Before the launch.  Outputs, gaps and guard bands are kPoison.
  const GdnMemory& memory() const { return memory_; }
  // The arguments, with pieces of memory that begin at these addresses.
  GdnArgs args(std::span<void* const> pieces) const;

  // Where a row of q, k, v, g, beta, o or z begins, a channel of x (as its head), a matrix of
  // states or checkpoints, and an element of a vector.
  Place row_at(TensorId tensor, std::int64_t n, std::int64_t t, std::int64_t h) const;
  Place matrix_at(TensorId tensor, std::int64_t row, std::int64_t h) const;
  Place vector_at(TensorId tensor, std::int64_t i) const;
  Place parent_at(std::int64_t n, std::int64_t t) const;
  // Offset or slot of checkpoint `i` of a sequence.
  Place place_at(TensorId tensor, std::int64_t n, std::int64_t i) const;
  // Of a convolution: column `i` of a channel's taps, and of its state in row `row`.
  Place tap_at(TensorId tensor, std::int64_t channel, std::int64_t i) const;
  Place conv_state_at(TensorId tensor, std::int64_t row, std::int64_t channel,
                      std::int64_t i) const;
  // All columns of a channel's state, in memory of this case before or after a launch.
  std::vector<float> conv_inputs(const GdnMemory& memory, TensorId tensor, std::int64_t row,
                                 std::int64_t channel) const;
  // For changes before the launch; references follow them.
  std::byte* at(const Place& place) { return memory_[place.piece].data() + place.byte; }

  // Rows of `count` values, and matrices as [key_dim][value_dim], in memory of this case before or
  // after a launch.
  std::vector<float> row_values(const GdnMemory& memory, TensorId tensor, std::int64_t n,
                                std::int64_t t, std::int64_t h, int count) const {
    return values_at(memory, tensor, row_at(tensor, n, t, h), count);
  }
  template <class Real>
  std::vector<Real> matrix_values(const GdnMemory& memory, TensorId tensor, std::int64_t row,
                                  std::int64_t h) const;
  // A tensor without its guard bands.
  std::span<const std::byte> bytes(const GdnMemory& memory, TensorId tensor) const;
  std::size_t matrix_elements() const;
  std::size_t matrix_bytes() const;

  // What sequence n is expected to do, its state and the checks of its indices.
  Row row(std::int64_t n) const { return row(n, malformed()); }
  // Where new states go: state_out, or state.
  TensorId target() const;
  TensorId conv_target() const;

  // Operands of a head's tokens first ... last - 1 as the reference takes them, and the state that
  // the sequence starts from.
  template <class Real>
  gdn::PrefillRefHead<Real> head(std::int64_t n, std::int64_t h, std::int64_t first,
                                 std::int64_t last) const;
  template <class Real>
  std::vector<Real> initial_state(std::int64_t n, std::int64_t h) const;
  // Compares a matrix.  `at`: sequence, head and number of the checkpoint.
  void compare_matrix(const GdnMemory& after, TensorId tensor, std::int64_t row,
                      std::span<const double> expected, Deviation::Index at,
                      Deviation* deviation) const;

  // One for each sequence and head, on all processors.
  std::vector<GdnReference> references() const;
  // `after`: the memory after the launch.  Without references they are computed on the way.
  GdnVerdict check(const GdnMemory& after, std::span<const GdnReference> references = {}) const;

 private:
  void fill_bounds(const CaseShape& shape);
  void fill_indices();
  void fill_places();
  std::vector<std::int64_t> slot_order() const;
  void fill_flags();
  void fill_parents();
  // The drawn numbers of a tensor.
  void fill(const TensorInfo& info);
  // How rows of numbers lie: from row to row, and in a row, in elements.
  struct Step {
    std::int64_t rows = 1, row = 0, column = 1;
  };
  void put(DType dtype, const Place& place, const Step& step, const std::vector<float>& numbers);
  std::int64_t has_initial() const { return problem_.states.has_initial ? 1 : 0; }

  std::vector<float> values_at(const GdnMemory& memory, TensorId tensor, const Place& place,
                               int count) const;
  std::size_t units() const { return idx(sequences_ * heads_); }
  std::int64_t start(std::int64_t n) const;  // packed: its first token
  std::int64_t first_checkpoint(std::int64_t n) const;
  // Checkpoints of a sequence, in the order of their tokens.
  struct Checkpoint {
    std::int64_t tokens = 0;  // that the state has taken in
    std::int64_t row = 0;
  };
  std::vector<Checkpoint> checkpoints(std::int64_t n) const;
  std::vector<Checkpoint> at_offsets(std::int64_t n) const;
  bool checkpoints_fit(std::int64_t n) const;
  TensorId checkpoint_target() const;
  std::int64_t integer(TensorId vector, std::int64_t i) const;
  std::int64_t parent(std::int64_t n, std::int64_t t) const;  // of a tree's token
  bool is_tree(std::int64_t n) const;                         // or, of none, a chain
  bool is_fresh(std::int64_t n) const;                        // starts from zero, by its flag
  bool malformed() const;
  Row row(std::int64_t n, bool malformed) const;
  Row slots_of(std::int64_t n) const;
  std::vector<Row> rows() const;

  GdnReference reference(std::int64_t n, std::int64_t h, const Row& row) const;
  // As the reference reads them.
  std::vector<float> operand(TensorId tensor, std::int64_t n, std::int64_t t, std::int64_t of,
                             int width) const;
  void advance(std::int64_t n, std::int64_t h, std::int64_t first, std::int64_t last,
               std::vector<float>* naive_state, GdnReference* reference) const;
  GdnDeviations compare(std::int64_t n, std::int64_t h, const Row& row,
                        const GdnReference& expected, const GdnMemory& after) const;
  std::string fault(const std::vector<Row>& rows, const GdnMemory& after) const;
  std::string row_fault(std::int64_t n, RowKind kind, const GdnMemory& after) const;
  std::size_t output_row_bytes() const;  // of a token and head
  void forgive(const GdnMemory& after, const Place& place, std::size_t count,
               GdnMemory* expected) const;
  void forgive_written(std::int64_t n, const Row& row, const GdnMemory& after,
                       GdnMemory* expected) const;
  void expect_conv_state(std::int64_t n, const Row& row, const GdnMemory& after,
                         GdnMemory* expected) const;

  GdnProblem problem_;
  CaseOptions options_;
  std::int64_t sequences_;
  std::int64_t heads_;
  std::int64_t tokens_;  // of the tensors, in each of their batch
  GdnLayout layout_;
  GdnMemory memory_;
};

// Calls work(0) to work(count - 1) on as many threads as there are processors.
void on_all_processors(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace cubinery
