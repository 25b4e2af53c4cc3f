// One small launch with random operands, on the host: what goes into it, and what must come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gdn_prefill_scan/gdn_prefill_ref.h"
#include "tuner/gdn/comparison.h"
#include "tuner/gdn/gdn_data.h"
#include "tuner/gdn/gdn_tensors.h"

namespace cubinery {

// How far the results of a launch are from the reference.
struct GdnComparison {
  Comparison o{}, state{}, checkpoints{};
  void merge(const GdnComparison& other);
};

class GdnCase {
 public:
  // `lengths`: of the sequences, at least two; where the problem has padding, the second is
  // padding. `chunk_size`: of the naive arithmetic that makes the budget; 0: it goes token by
  // token, as decode does.
  GdnCase(const gdn::PrefillProblem& problem, std::vector<std::int64_t> lengths,
          const DataOptions& data, int chunk_size);

  // All tensors before the launch, in one piece of memory with gaps between them.  Outputs and gaps
  // have all bits set.
  std::span<const std::byte> image() const { return image_; }
  // The arguments, with the image at `base` on the device, 256-byte aligned.
  gdn::PrefillArgs args(void* base) const;

  // The work comes in units, one for each sequence and head; different ones may be done on
  // different threads.
  std::size_t units() const { return units_.size(); }
  // Runs the reference.  Requires: once for each unit, before compare().
  void compute(std::size_t unit);
  // `after`: the image after the launch.
  GdnComparison compare(std::size_t unit, std::span<const std::byte> after) const;
  // What is wrong in the memory around the results: writes where no sequence may write, and
  // padding that was not kept.  Empty when nothing is.  Changes `after`.
  std::string fault(std::span<std::byte> after) const;

 private:
  enum class Kind { kComputed, kSkipped, kZeroed };
  struct Sequence {
    std::int64_t length = 0;
    std::int64_t first = 0;  // token
    std::int64_t slot = 0;
    std::int64_t first_checkpoint = 0;
    Kind kind = Kind::kComputed;
  };
  struct Unit {
    std::vector<double> o{};            // [length][value_dim]
    std::vector<double> state{};        // [key_dim][value_dim]
    std::vector<double> checkpoints{};  // [count][key_dim][value_dim]
    GdnComparison naive{};
  };

  void place_sequences(const std::vector<std::int64_t>& lengths);
  void lay_out();
  void fill_indices();
  void fill_rows(const Tensor& tensor, DataStream stream, int heads, int dim);
  void fill_gates();
  void fill_states();

  std::int64_t matrix_elements() const {
    return std::int64_t{problem_.key_dim} * problem_.value_dim;
  }
  // Byte offsets in the image: of the row of token t of a sequence, of a matrix of states.
  std::size_t row_at(const Tensor& tensor, const Sequence& sequence, std::int64_t t,
                     std::int64_t head) const;
  std::size_t matrix_at(const Tensor& tensor, std::int64_t row, std::int64_t head) const;
  std::size_t state_offset(int i, int j) const;

  template <class Real>
  gdn::PrefillRefHead<Real> head(const Sequence& sequence, std::int64_t h) const;
  template <class Real>
  std::vector<Real> initial_state(const Sequence& sequence, std::int64_t h) const;
  void compare_matrix(std::span<const std::byte> matrix, const double* expected,
                      Comparison::Index at, Comparison* comparison) const;
  std::string restore(const Sequence& sequence, std::int64_t head,
                      std::span<std::byte> after) const;

  gdn::PrefillProblem problem_;
  DataOptions data_;
  int chunk_size_;
  std::int64_t heads_;
  GdnExtent extent_;
  std::vector<Sequence> sequences_;
  gdn::PrefillArgs tensors_;  // data: offsets in the image
  std::vector<std::byte> image_;
  std::vector<Unit> units_;
};

}  // namespace cubinery
