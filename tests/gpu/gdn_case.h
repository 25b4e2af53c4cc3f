// One decode step with random operands: how they lie, what the reference makes of them, and how far
// the operator's results may be from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "templates/gdn_decode/gdn_decode_ref.h"
#include "tests/gpu/device.h"

namespace cubinery::test {

// Distributions of the decay: strong (-U(0,1)), Qwen (slow, none for a quarter of the heads),
// undecayed (0), init (a freshly initialised model), extreme (-31 to -69: exp underflows).
enum class Gates { kStrong, kQwen, kUndecayed, kInit, kExtreme };

// How q, k, v, gates and o lie in memory.
enum class Placement {
  kContiguous,
  kPackedRows,       // q, k and v are slices of one [B, channels] tensor
  kTransposedHeads,  // heads outermost
  kRank4,            // [B, 1, heads, dim], rows with gaps
  kUnaligned,        // odd element strides and offsets; vectors with gaps
};

struct CaseOptions {
  std::uint64_t seed = 1;
  Gates gates = Gates::kQwen;
  Placement placement = Placement::kContiguous;
  double key_correlation = 0;  // of keys of one head, over requests and seeds
  std::optional<float> scale{};
  bool programmatic = false;

  std::int64_t head_gap = 0;  // elements between the heads' matrices
  std::int64_t slot_gap = 0;  // elements between slots
  bool separate_out = false;  // state_out is a tensor of its own
  std::int64_t out_slot_gap = 0;

  // StateLocation::kPool.  Empty `read`: random distinct slots other than 0.
  bool write_indices = false;  // distinct write slots, also distinct from those read
  std::vector<std::int64_t> read{};
  std::vector<std::int64_t> write{};
  std::int64_t slots = 0;  // 0: a few more than needed
  std::int64_t scratch_slot = 0;
};

// A tensor of a batch on the device, and the bytes it was filled with.
struct Storage {
  std::vector<std::byte> bytes;
  DeviceBuffer device;
};
struct Operand {
  std::shared_ptr<Storage> storage{};  // null when the tensor is absent
  Tensor view{};                       // of the device
  std::int64_t first = 0;              // element of storage that is element (0, 0, 0)
  std::int64_t batch_stride = 0;       // in elements
  std::int64_t head_stride = 0;

  // Byte offset of element (n, h, d) in its storage.
  std::size_t offset(std::int64_t n, std::int64_t h, std::int64_t d = 0) const {
    return static_cast<std::size_t>(first + n * batch_stride + h * head_stride + d) *
           static_cast<std::size_t>(size_of(view.dtype));
  }
  std::byte* at(std::int64_t n, std::int64_t h, std::int64_t d = 0) const {
    return storage->bytes.data() + offset(n, h, d);
  }
};

// The worst element of a comparison, and the budget it is held to: twice the worst error of naive
// float arithmetic on the same data, plus a floor of 1e-6 of the largest value.
struct Comparison {
  double worst = 0;
  double actual = 0;
  double expected = 0;
  std::array<std::int64_t, 4> index{};  // request, head, and element: (d) of o, (i, j) of a state S
  double naive = 0;
  double magnitude = 0;

  void add(double actual_value, double naive_value, double expected_value,
           const std::array<std::int64_t, 4>& at);
  void merge(const Comparison& other);
  double budget() const { return 2 * naive + 1e-6 * magnitude; }
  bool ok() const;
  std::string text(const char* name) const;
};

// |a - b|; 0 when both are the same infinity or both NaN, infinite when only one is.
double distance(double a, double b);

// What the operator left in memory.
struct Results {
  std::vector<std::byte> o, state, state_out;
  friend bool operator==(const Results&, const Results&) = default;
};

struct Verdict {
  Comparison o, state;
  std::string
      fault;  // the first violation that is no matter of tolerance; empty when there is none
  bool ok() const { return o.ok() && state.ok() && fault.empty(); }
};

class DecodeCase {
 public:
  // What request n is expected to do.  kShared: one of several requests that work on the scratch
  // slot at once; only finite values are promised.
  enum class RowKind { kComputed, kSkipped, kZeroed, kInvalid, kShared };
  static constexpr std::int64_t kNowhere = -1;  // as a slot to write: the new state is dropped
  struct Row {
    RowKind kind = RowKind::kComputed;
    std::int64_t read = 0;
    std::int64_t write = 0;
  };

  DecodeCase(const Gpu& gpu, const gdn::DecodeProblem& problem, std::int64_t batch,
             const CaseOptions& options = {});

  const gdn::DecodeProblem& problem() const { return problem_; }
  const CaseOptions& options() const { return options_; }
  std::int64_t batch() const { return batch_; }
  gdn::DecodeArgs args() const;
  // The same for requests first ... first + count - 1 alone.
  gdn::DecodeArgs args(std::int64_t first, std::int64_t count) const;

  // Sends all bytes (again): outputs become NaN.
  void upload() const;
  Results download() const;
  bool guards_intact() const;

  Row row(std::int64_t n) const;
  // Compares with the reference; bytes that no request may write must be as they were.
  Verdict check(const Results& results) const;

  // Operands of a head as the reference takes them, and its stored state as [key_dim][value_dim].
  template <class Real>
  gdn::DecodeRefHead<Real> head(std::int64_t n, std::int64_t h) const;
  template <class Real>
  std::vector<Real> state_matrix(const Operand& tensor, const std::vector<std::byte>& bytes,
                                 std::int64_t slot, std::int64_t h) const;

  const Operand& q() const { return q_; }
  const Operand& k() const { return k_; }
  const Operand& v() const { return v_; }
  const Operand& gate() const { return gate_; }
  const Operand& beta() const { return beta_; }
  const Operand& o() const { return o_; }
  const Operand& state() const { return state_; }

 private:
  void make_tensors();
  void make_indices();
  void fill_rows();
  void fill_gates();
  void fill_states();
  Operand tensor(DType dtype, std::int64_t heads, std::int64_t dim) const;
  Operand vector(DType dtype, std::int64_t count) const;
  Operand state_tensor(std::int64_t slot_gap) const;
  void check_head(std::int64_t n, std::int64_t h, const Results& results, Verdict* verdict) const;
  std::string check_row(std::int64_t n, const Results& results) const;
  std::string check_untouched(const Results& results) const;
  void forgive_written(std::int64_t n, const Results& results, Results* expected) const;
  std::int64_t matrix_offset(std::int64_t i, std::int64_t j) const;

  const Gpu& gpu_;
  gdn::DecodeProblem problem_;
  CaseOptions options_;
  std::int64_t batch_;
  std::int64_t heads_;
  std::int64_t slots_;
  Operand q_, k_, v_, gate_, beta_, a_log_, dt_bias_, o_, state_, state_out_, read_, write_;
};

}  // namespace cubinery::test
