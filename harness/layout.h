// How the tensors of one small launch lie in its memory.  Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/memory.h"
#include "harness/tensors.h"

namespace cubinery {

// Of q, k, v, gates and o.
enum class Placement {
  kContiguous,
  kPackedRows,       // q, k and v are slices of one [.., channels] tensor
  kTransposedHeads,  // heads before tokens; with TokenLayout::kBHTD, after them
  kRank4,            // rows with gaps; packed sequences have rank 4, [1, total, heads, dim]
  kUnaligned,        // odd element strides and offsets; vectors with gaps
};
// x and states of a convolution lie in vectors of four: kContiguous, or with gaps of such.
inline constexpr std::int64_t kConvVector = 4;

struct LayoutOptions {
  Placement placement = Placement::kContiguous;
  // In elements.
  std::int64_t head_gap = 0;      // between the heads' matrices
  std::int64_t slot_gap = 0;      // between slots, and rows of checkpoints
  std::int64_t out_slot_gap = 0;  // the same of state_out
};

class GdnLayout {
 public:
  // `tensors`: contiguous.
  explicit GdnLayout(const TensorSet& tensors, const LayoutOptions& options = {});

  GdnMemory memory() const;  // all kPoison
  // Without data.
  const TensorSet& tensors() const { return tensors_; }
  // The same in pieces of memory that begin at these addresses.
  TensorSet tensors(std::span<void* const> pieces) const;
  // Which dimension of tensors of tokens counts tokens, and which heads.
  std::size_t token_dimension() const;
  std::size_t head_dimension() const;

  // A byte of the memory.
  struct Place {
    std::size_t piece = 0;
    std::size_t byte = 0;
  };
  // Of an element, `element` from [0, ..., 0] on.
  Place at(TensorId tensor, std::int64_t element) const;
  // Of the row of a token and head; packed: `batch` is 0.
  Place row_at(TensorId tensor, std::int64_t batch, std::int64_t token, std::int64_t head) const;

 private:
  // Where a tensor lies.
  struct Spot {
    std::size_t piece = 0;
    std::int64_t first = 0;     // element of the piece that is [0, ..., 0]
    std::int64_t elements = 0;  // of the piece; 0 where it is another tensor's
  };

  bool has_batch_dimension() const;
  std::int64_t vector_gap() const;
  std::int64_t first_of(const TensorInfo& info) const;
  std::int64_t gap_of(const TensorInfo& info, gdn::Axis axis) const;
  bool lies_heads_first() const;
  void place(const TensorInfo& info);
  void pack_rows();

  LayoutOptions options_;
  TensorSet tensors_;
  std::array<Spot, gdn::kTensorCount> spots_{};
};

}  // namespace cubinery
