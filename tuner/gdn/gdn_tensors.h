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

using TensorOf = Tensor gdn::PrefillArgs::*;

// All that a launch may have.
struct TensorMember {
  const char* name;
  TensorOf member;
};
inline constexpr TensorMember kTensors[] = {
    {"q", &gdn::PrefillArgs::q},
    {"k", &gdn::PrefillArgs::k},
    {"v", &gdn::PrefillArgs::v},
    {"g", &gdn::PrefillArgs::g},
    {"beta", &gdn::PrefillArgs::beta},
    {"A_log", &gdn::PrefillArgs::A_log},
    {"dt_bias", &gdn::PrefillArgs::dt_bias},
    {"o", &gdn::PrefillArgs::o},
    {"cu_seqlens", &gdn::PrefillArgs::cu_seqlens},
    {"state", &gdn::PrefillArgs::state},
    {"state_out", &gdn::PrefillArgs::state_out},
    {"state_indices", &gdn::PrefillArgs::state_indices},
    {"state_out_indices", &gdn::PrefillArgs::state_out_indices},
    {"checkpoints", &gdn::PrefillArgs::checkpoints},
    {"checkpoint_cu_starts", &gdn::PrefillArgs::checkpoint_cu_starts},
};

std::int64_t elements_of(const Tensor& tensor);
std::size_t bytes_of(const Tensor& tensor);

// How many checkpoints a sequence has.
std::int64_t checkpoints_of(const gdn::PrefillProblem& problem, std::int64_t tokens);

// What a launch must at least move: every operand, and every state that is read or written, once;
// vectors of heads and bounds of sequences, which are next to nothing, not.
std::int64_t least_bytes(const gdn::PrefillProblem& problem, const GdnExtent& extent);

}  // namespace cubinery
