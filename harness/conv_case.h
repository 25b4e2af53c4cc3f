// One small launch of a convolution with random operands, on the host: how they lie, what the
// reference makes of them, and how far a launch's results may be from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/deviation.h"
#include "harness/layout.h"
#include "harness/memory.h"
#include "harness/random.h"

namespace cubinery {

struct ConvCaseOptions {
  std::vector<std::int64_t> lengths{};  // of the sequences, in tokens; dense: all the same
  std::int64_t channels = 0;            // without split_qkv
  std::int64_t columns = 0;             // of a state; 0: as few as the problem lets it have
  std::uint64_t seed = 1;
  float magnitude = 1;  // of x
  // Packed: tokens before the first and behind the last sequence.  Their x is NaN.
  std::int64_t lead = 0;
  std::int64_t tail = 0;
  // Every third sequence is new, where the problem lets it: its state is NaN.
  bool has_flags = false;
  bool separate_out = false;
  std::optional<std::int64_t> checkpoint_every{};  // of the launch
  // Packed: checkpoints that the range of each second sequence has room for besides its own.
  std::int64_t spare_checkpoints = 0;
  // Checkpoints::kAt: of each sequence so many at drawn offsets, some of which are none.
  std::int64_t offsets = 2;
  bool checkpoints_in_pool = false;  // they go where new states go, to slots of their own
  Padding padding{};
  std::int64_t padded = -1;  // the sequence that is padding where there is any
  float scale = 1;
  float lower_bound = kLowerBound;
  bool bare_gates = false;  // without A_log and dt_bias where that may be
};

// What a launch is to make of a case.
struct ConvReference {
  struct Output {
    TensorId tensor;
    std::vector<double> values;  // as in memory; NaN: not compared
    Deviation naive;             // what fp32 and rounding lose
  };
  std::vector<Output> outputs{};
  GdnMemory memory{};  // but for those values: bit for bit
};

struct ConvVerdict {
  struct Error {
    TensorId tensor;
    Deviation deviation;
  };
  std::vector<Error> errors{};
  // What is no matter of tolerance: states, and bytes that are nobody's to write.  Empty when all
  // are right.
  std::string fault{};
  bool ok() const;
};

class ConvCase {
 public:
  ConvCase(const gdn::ConvProblem& problem, ConvCaseOptions options);

  const gdn::ConvProblem& problem() const { return prepared_; }
  const ConvCaseOptions& options() const { return options_; }
  // Before the launch, Outputs and guard bands are kPoison.
  const GdnMemory& memory() const { return memory_; }
  // The arguments, with pieces of memory that begin at these addresses.
  gdn::ConvArgs args(std::span<void* const> pieces) const;

  ConvReference reference() const;
  ConvVerdict check(const GdnMemory& after, const ConvReference& reference) const;

 private:
  // What a sequence is expected to do, and with which state.
  struct Place {
    enum class Kind { kComputed, kSkipped, kZeroed } kind = Kind::kComputed;
    std::int64_t state = 0;  // where that begins that it starts from, in elements
    bool has_initial = false;
    std::int64_t start = 0;  // column of the oldest input that counts
  };
  // Where a new state goes.
  struct Written {
    TensorId tensor;
    std::int64_t state;  // as in Place
  };
  class Reference;

  const Tensor& tensor(TensorId which) const { return layout_.tensors()[which]; }
  std::int64_t integer(TensorId which, std::int64_t n) const;
  // The number of token t of sequence n among the tensors' tokens.
  std::int64_t row(std::int64_t n, std::int64_t t) const;
  std::int64_t rows() const;
  bool is_new(std::int64_t n) const;
  std::int64_t state_in(TensorId which, std::int64_t row, std::int64_t step = 0) const;
  Place place(std::int64_t n) const;
  std::optional<Written> written(std::int64_t n, std::int64_t step) const;
  std::int64_t first_checkpoint(std::int64_t n) const;
  // Of a sequence that is computed: the tokens behind which a state is kept, and where.
  struct Checkpoint {
    std::int64_t tokens;
    Written to;
  };
  std::vector<Checkpoint> checkpoints(std::int64_t n) const;
  TensorId target() const;  // of new states
  void fill_slots(Random& random);
  void fill_places();
  void fill();
  void fill_integers();

  gdn::ConvProblem problem_;   // as the launch has it
  gdn::ConvProblem prepared_;  // as it was given
  ConvCaseOptions options_;
  Extent extent_;
  GdnLayout layout_;
  GdnMemory memory_;
};

}  // namespace cubinery
