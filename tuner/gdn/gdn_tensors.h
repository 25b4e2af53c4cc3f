// The tensors of one launch of a Gated DeltaNet operator, contiguous: as workloads have them, and
// what GdnLayout starts from.  Pure functions.
//
// A decode step is the prefill of packed sequences of one token each: its tensors are the same, so
// all of this is written for prefill.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cubinery/gdn.h"

namespace cubinery {

inline std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

constexpr std::size_t kTensorAlignment = 256;
inline std::size_t aligned(std::size_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

gdn::PrefillProblem as_prefill(const gdn::DecodeProblem& problem);
// Packed tensors of rank 4, [1, batch, ...], become [batch, 1, ...].
gdn::DecodeArgs as_decode(const gdn::PrefillArgs& args);

struct GdnExtent {
  std::vector<std::int64_t> lengths{};  // of the sequences, in tokens; dense: all the same
  std::int64_t slots = 0;               // of the pool; not used with dense states
  std::int64_t checkpoints = 0;         // in all
  bool separate_out = false;            // new states go to a tensor of their own
  bool write_indices = false;           // to slots of their own; not used with dense states
  std::int64_t spare_tokens = 0;        // packed: of no sequence

  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int64_t tokens() const;
};

// The tensors that the problem uses, without data.
gdn::PrefillArgs tensors_of(const gdn::PrefillProblem& problem, const GdnExtent& extent);

// All that a launch may have.
enum class GdnTensor {
  kQ,
  kK,
  kV,
  kG,
  kBeta,
  kALog,
  kDtBias,
  kO,
  kCuSeqlens,
  kState,
  kStateOut,
  kStateIndices,
  kStateOutIndices,
  kCheckpoints,
  kCheckpointCuStarts,
};

struct NamedTensor {
  const char* name;
  GdnTensor tensor;
};
// In the order of the enumeration.
inline constexpr NamedTensor kTensors[] = {
    {"q", GdnTensor::kQ},
    {"k", GdnTensor::kK},
    {"v", GdnTensor::kV},
    {"g", GdnTensor::kG},
    {"beta", GdnTensor::kBeta},
    {"A_log", GdnTensor::kALog},
    {"dt_bias", GdnTensor::kDtBias},
    {"o", GdnTensor::kO},
    {"cu_seqlens", GdnTensor::kCuSeqlens},
    {"state", GdnTensor::kState},
    {"state_out", GdnTensor::kStateOut},
    {"state_indices", GdnTensor::kStateIndices},
    {"state_out_indices", GdnTensor::kStateOutIndices},
    {"checkpoints", GdnTensor::kCheckpoints},
    {"checkpoint_cu_starts", GdnTensor::kCheckpointCuStarts},
};

Tensor& tensor_of(gdn::PrefillArgs& args, GdnTensor tensor);
const Tensor& tensor_of(const gdn::PrefillArgs& args, GdnTensor tensor);

std::int64_t elements_of(const Tensor& tensor);
std::size_t bytes_of(const Tensor& tensor);

// How many checkpoints a sequence has.
std::int64_t checkpoints_of(const gdn::PrefillProblem& problem, std::int64_t tokens);

// What a launch must at least move: every operand, and every state that is read or written, once;
// vectors of heads and bounds of sequences, which are next to nothing, not.
std::int64_t least_bytes(const gdn::PrefillProblem& problem, const GdnExtent& extent);

}  // namespace cubinery
