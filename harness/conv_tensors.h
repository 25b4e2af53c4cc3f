// The tensors of one launch of a convolution: what they are called, how they look (contiguous, as
// workloads and checks have them), and what numbers they get.  Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cubinery/gdn_conv.h"
#include "harness/random.h"

namespace cubinery {

// The sizes of a launch's tensors.
struct ConvForm {
  std::vector<std::int64_t> lengths{};  // of the sequences, in tokens; dense: all the same
  std::int64_t channels = 0;
  std::int64_t columns = 0;       // of a state
  std::int64_t steps = 0;         // of a sequence, with stored_states every
  std::int64_t slots = 0;         // of the pool; not used with dense states
  std::int64_t checkpoints = 0;   // rows of the tensor
  std::int64_t spare_tokens = 0;  // packed: of no sequence
  bool has_flags = false;         // ConvArgs::has_initial_state is there, where the problem lets it
  bool separate_out = false;      // new states go to a tensor of their own, where there are any

  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int64_t tokens() const;  // of the sequences
};

// Channels, columns of a state, steps and checkpoints that the problem has where they are 0:
// columns with from_accepted, and steps, as many as the longest sequence needs.
ConvForm conv_form(const gdn::ConvProblem& problem, ConvForm form);

// All that a launch may have.
enum class ConvTensor {
  kX,
  kWeight,
  kBias,
  kY,
  kQ,
  kK,
  kV,
  kA,
  kB,
  kALog,
  kDtBias,
  kG,
  kBeta,
  kCuSeqlens,
  kHasInitial,
  kAccepted,
  kState,
  kStateOut,
  kStateIndices,
  kStateOutIndices,
  kCheckpoints,
  kCheckpointStarts,
};

// What a tensor counts.
enum class ConvKind {
  kInputs,   // tokens
  kOutputs,  // tokens: written
  kWeights,  // channels or heads
  kBounds,   // sequences: where they begin, and where the last ends
  kStates,
  kCheckpoints,
  kFlags,  // sequences
  kCounts,
  kIndices,
};

struct ConvTensorInfo {
  const char* name;
  ConvTensor tensor;
  ConvKind kind;
  Tensor& (*in)(gdn::ConvArgs& args);
  // Absent where the problem has none.
  Tensor (*form)(const gdn::ConvProblem& problem, const ConvForm& form);
  // One number.  nullptr: outputs and integers.
  float (*draw)(Random& random) = nullptr;
};

// The one list of tensors, in the order of the enumeration.
const std::vector<ConvTensorInfo>& conv_tensors();
inline const ConvTensorInfo& info_of(ConvTensor tensor) {
  return conv_tensors()[static_cast<std::size_t>(tensor)];
}

// The tensors that the problem uses, without data.
gdn::ConvArgs tensors_of(const gdn::ConvProblem& problem, const ConvForm& form);

// Whether the steps of a sequence are written where they are read.
bool steps_in_place(const gdn::ConvProblem& problem, const ConvForm& form);

// What a launch must at least move: every operand, and every state that is read or written, once.
std::int64_t least_bytes(const gdn::ConvProblem& problem, const ConvForm& form);

}  // namespace cubinery
