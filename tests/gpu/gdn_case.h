// What the cases of decode and prefill share: options, operands in memory, random data, and how far
// results may be from the reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "tests/gpu/device.h"
#include "tuner/gdn/comparison.h"
#include "tuner/gdn/gdn_data.h"

namespace cubinery::test {

// How q, k, v, gates and o lie in memory.
enum class Placement {
  kContiguous,
  kPackedRows,       // q, k and v are slices of one [.., channels] tensor
  kTransposedHeads,  // heads before tokens or requests; with TokenLayout::kBHTD, after them
  kRank4,            // rows with gaps; decode [B, 1, heads, dim], varlen [1, total, heads, dim]
  kUnaligned,        // odd element strides and offsets; vectors with gaps
};

struct CaseOptions {
  std::uint64_t seed = 1;
  Gates gates = Gates::kQwen;
  Placement placement = Placement::kContiguous;
  double key_correlation = 0;  // of keys of one head, over tokens, requests and seeds
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

  DataOptions data() const {
    return {.seed = seed, .gates = gates, .key_correlation = key_correlation};
  }
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
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  // Byte offset of element (n, h, d) in its storage.
  std::size_t offset(std::int64_t n, std::int64_t h, std::int64_t d = 0) const {
    return static_cast<std::size_t>(first + n * batch_stride + h * head_stride + d) *
           static_cast<std::size_t>(size_of(view.dtype));
  }
  // The same for token t.
  std::size_t token_offset(std::int64_t n, std::int64_t t, std::int64_t h) const {
    return offset(n, h, t * token_stride);
  }
  std::byte* at(std::int64_t n, std::int64_t h, std::int64_t d = 0) const {
    return storage->bytes.data() + offset(n, h, d);
  }
};

std::shared_ptr<Storage> make_storage(const Gpu& gpu, std::int64_t elements, DType dtype);
// Makes the view point at element (0, 0, 0) on the device.
void place(Operand* operand);
// [count] with gaps for Placement::kUnaligned.  Element n is at(n, 0).
Operand make_vector(const Gpu& gpu, DType dtype, std::int64_t count, Placement placement);
// Stores a row of floats, rounded to dtype.
void store_row(DType dtype, std::byte* to, const std::vector<float>& row);
// Of an i32 or i64 vector.
void store_index(const Operand& operand, std::int64_t n, std::int64_t value);
std::int64_t load_index(const Operand& operand, std::int64_t n);
void add_dimension(Tensor* tensor, std::int64_t extent, std::int64_t stride);
// Rows first ... first + count - 1 of dimension `dimension` alone.
void slice(Tensor* tensor, int dimension, std::int64_t first, std::int64_t count);

void upload(const std::vector<const Operand*>& operands);
bool guards_intact(const std::vector<const Operand*>& operands);
std::vector<std::byte> download(const Operand& operand);

// Where a comparison is worst, for people; `name` is the tensor's.
std::string text(const Comparison& comparison, const char* name);

// What the operator left in memory.
struct Results {
  std::vector<std::byte> o{}, state{}, state_out{}, checkpoints{};
  friend bool operator==(const Results&, const Results&) = default;
};

struct Verdict {
  Comparison o, state, checkpoints;
  // The first violation that is no matter of tolerance; empty when there is none.
  std::string fault;
  bool ok() const { return o.ok() && state.ok() && checkpoints.ok() && fault.empty(); }
  std::string text() const;
};

// The first byte that differs and should not; empty when there is none.
std::string first_difference(const Results& results, const Results& expected);
// Copies `count` bytes at `offset`: what an operator may write there is not for
// first_difference().
void forgive(const std::vector<std::byte>& results, std::vector<std::byte>* expected,
             std::size_t offset, std::int64_t count);

}  // namespace cubinery::test
