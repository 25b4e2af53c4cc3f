// The tensors of one launch of a Gated DeltaNet operator: what they are called, how they look
// (contiguous: as workloads have them, and what GdnLayout starts from), and what numbers they get.
// Pure functions.
//
// All of this is written for prefill: gdn_operators.h says how the others look as one.  Only trees
// of tokens, a norm of the outputs and a convolution in front are not a prefill's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cubinery/gdn.h"
#include "harness/gdn_data.h"
#include "runtime/gdn/conv/operator.h"

namespace cubinery {

inline std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }

constexpr std::size_t kTensorAlignment = 256;
inline std::size_t aligned(std::size_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

struct GdnProblem : gdn::PrefillProblem {
  gdn::OutputNorm output_norm = gdn::OutputNorm::kNone;
  DType norm_weight_dtype = DType::kF32;
  gdn::DecodeConv conv{};  // q, k and v are made of x

  GdnProblem() = default;
  GdnProblem(const gdn::PrefillProblem& plain)  // NOLINT(google-explicit-constructor)
      : gdn::PrefillProblem(plain) {}
};

struct GdnArgs : gdn::PrefillArgs {
  Tensor parents{};
  Tensor z{};
  Tensor norm_weight{};
  gdn::DecodeConvArgs conv{};
  std::optional<float> norm_eps{};
};

struct GdnExtent {
  std::vector<std::int64_t> lengths{};  // of the sequences, in tokens; dense: all the same
  std::int64_t slots = 0;               // of the pool; not used with dense states
  std::int64_t checkpoints = 0;         // in all
  bool separate_out = false;            // new states go to a tensor of their own
  bool write_indices = false;           // to slots of their own; not used with dense states
  std::int64_t spare_tokens = 0;        // packed: of no sequence
  std::optional<DType> parents{};       // sequences are trees; the dtype of their tokens' parents

  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int64_t tokens() const;
};

// What tensors look like; without data.

// Of tokens: the rows of so many heads, or without `dim` (0) a number of each.
Tensor token_tensor(const GdnProblem& problem, const GdnExtent& extent, DType dtype, int heads,
                    int dim);
// Likewise, of q, k or v.  Absent where a convolution makes them.
Tensor operand_tensor(const GdnProblem& problem, const GdnExtent& extent, int heads, int dim);
Tensor vector_tensor(DType dtype, std::int64_t count);
Tensor parents_tensor(const GdnProblem& problem, const GdnExtent& extent);
// Matrices as states are, of all heads.
Tensor matrix_tensor(const GdnProblem& problem, std::int64_t rows);
// As many as there are sequences, or slots in the pool.
Tensor state_tensor(const GdnProblem& problem, const GdnExtent& extent);

// Of a convolution: columns of a state.
int conv_columns(const GdnProblem& problem);
// As many states as there are sequences, or slots in the pool.
Tensor conv_state_tensor(const GdnProblem& problem, const GdnExtent& extent);

// What a tensor's numbers are drawn for: `rows` rows of sequence n (of states: matrix n) and head
// h, behind each other.
struct GdnDraw {
  const GdnProblem& problem;
  const DataOptions& data;
  std::int64_t n = 0;
  std::int64_t h = 0;
  std::int64_t rows = 1;
};
std::vector<float> draw_rows(const GdnDraw& draw, DataStream stream, std::int64_t dim, bool raw);
// So many for each channel, so that a sum over the taps is about 1.
std::vector<float> draw_taps(const GdnDraw& draw, DataStream stream, int count);
// `next`: of a GateSource.
template <class Next>
std::vector<float> draw_gates(const GdnDraw& draw, Next next) {
  GateSource source(draw.problem.inputs.gate_mode, draw.problem.inputs.beta_mode, draw.data, draw.n,
                    draw.h);
  std::vector<float> numbers(idx(draw.rows));
  for (float& number : numbers) number = (source.*next)();
  return numbers;
}

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
  kParents,
  kZ,
  kNormWeight,
  kX,
  kConvWeight,
  kConvBias,
  kConvState,
  kConvStateOut,
};

// What a tensor counts.
enum class GdnKind {
  kRows,      // tokens and heads: a row each
  kScalars,   // tokens and heads: a number each
  kChannels,  // tokens: a row of all channels
  kHeads,
  kTaps,     // channels: some numbers each
  kColumns,  // of a row of values
  kBounds,   // sequences: where they begin, and where the last ends
  kStates,
  kConvStates,
  kIndices,  // sequences: their states
  kCheckpoints,
  kParents,  // tokens: a number each
};
constexpr bool is_of_tokens(GdnKind kind) {
  return kind == GdnKind::kRows || kind == GdnKind::kScalars || kind == GdnKind::kChannels;
}

struct GdnTensorInfo {
  const char* name;
  GdnTensor tensor;
  GdnKind kind;
  Tensor& (*in)(GdnArgs& args);
  // Absent where the problem has none.
  Tensor (*form)(const GdnProblem& problem, const GdnExtent& extent);
  // nullptr: outputs and integers.
  std::vector<float> (*draw)(const GdnDraw& draw) = nullptr;
};

// member<&A::b, &B::c>(a) is a.b.c.
template <auto... kMembers>
Tensor& member(GdnArgs& args) {
  return (args.*....*kMembers);
}

// The one list of tensors, in the order of the enumeration.
inline constexpr GdnTensorInfo kTensors[] = {
    {"q", GdnTensor::kQ, GdnKind::kRows, member<&gdn::PrefillArgs::q>,
     [](const auto& p, const auto& extent) {
       return operand_tensor(p, extent, p.heads.q, p.key_dim);
     },
     [](const auto& draw) {
       return draw_rows(draw, DataStream::kQ, draw.problem.key_dim,
                        draw.problem.inputs.use_qk_l2norm);
     }},
    {"k", GdnTensor::kK, GdnKind::kRows, member<&gdn::PrefillArgs::k>,
     [](const auto& p, const auto& extent) {
       return operand_tensor(p, extent, p.heads.k, p.key_dim);
     },
     [](const auto& draw) {
       return draw_rows(draw, DataStream::kK, draw.problem.key_dim,
                        draw.problem.inputs.use_qk_l2norm);
     }},
    {"v", GdnTensor::kV, GdnKind::kRows, member<&gdn::PrefillArgs::v>,
     [](const auto& p, const auto& extent) {
       return operand_tensor(p, extent, p.heads.v, p.value_dim);
     },
     [](const auto& draw) {
       return draw_rows(draw, DataStream::kV, draw.problem.value_dim, /*raw=*/true);
     }},
    {"g", GdnTensor::kG, GdnKind::kScalars, member<&gdn::PrefillArgs::gates, &gdn::GateArgs::g>,
     [](const auto& p, const auto& extent) {
       return p.inputs.gate_mode == gdn::GateMode::kNone
                  ? Tensor{}
                  : token_tensor(p, extent, p.inputs.gate_dtype, p.heads.count(), 0);
     },
     [](const auto& draw) { return draw_gates(draw, &GateSource::next_gate); }},
    {"beta", GdnTensor::kBeta, GdnKind::kScalars,
     member<&gdn::PrefillArgs::gates, &gdn::GateArgs::beta>,
     [](const auto& p, const auto& extent) {
       return p.inputs.beta_mode == gdn::BetaMode::kOne
                  ? Tensor{}
                  : token_tensor(p, extent, p.inputs.beta_dtype, p.heads.count(), 0);
     },
     [](const auto& draw) { return draw_gates(draw, &GateSource::next_beta); }},
    {"A_log", GdnTensor::kALog, GdnKind::kHeads,
     member<&gdn::PrefillArgs::gates, &gdn::GateArgs::A_log>,
     [](const auto& p, const auto&) {
       return p.inputs.gate_mode == gdn::GateMode::kComputed
                  ? vector_tensor(p.inputs.a_log_dtype, p.heads.count())
                  : Tensor{};
     },
     [](const auto& draw) { return draw_gates(draw, &GateSource::a_log); }},
    {"dt_bias", GdnTensor::kDtBias, GdnKind::kHeads,
     member<&gdn::PrefillArgs::gates, &gdn::GateArgs::dt_bias>,
     [](const auto& p, const auto&) {
       return p.inputs.gate_mode == gdn::GateMode::kComputed
                  ? vector_tensor(p.inputs.dt_bias_dtype, p.heads.count())
                  : Tensor{};
     },
     [](const auto& draw) { return draw_gates(draw, &GateSource::dt_bias); }},
    {"o", GdnTensor::kO, GdnKind::kRows, member<&gdn::PrefillArgs::o>,
     [](const auto& p, const auto& extent) {
       return token_tensor(p, extent, p.output_dtype, p.heads.count(), p.value_dim);
     }},
    {"cu_seqlens", GdnTensor::kCuSeqlens, GdnKind::kBounds, member<&gdn::PrefillArgs::cu_seqlens>,
     [](const auto& p, const auto& extent) {
       return p.varlen ? vector_tensor(p.cu_seqlens_dtype, extent.sequences() + 1) : Tensor{};
     }},
    {"state", GdnTensor::kState, GdnKind::kStates,
     member<&gdn::PrefillArgs::states, &gdn::StateArgs::in>,
     [](const auto& p, const auto& extent) {
       return p.states.has_initial || p.states.store ? state_tensor(p, extent) : Tensor{};
     },
     [](const auto& draw) {
       return draw_rows(draw, DataStream::kState, draw.problem.value_dim, /*raw=*/true);
     }},
    {"state_out", GdnTensor::kStateOut, GdnKind::kStates,
     member<&gdn::PrefillArgs::states, &gdn::StateArgs::out>,
     [](const auto& p, const auto& extent) {
       return extent.separate_out ? state_tensor(p, extent) : Tensor{};
     }},
    {"state_indices", GdnTensor::kStateIndices, GdnKind::kIndices,
     member<&gdn::PrefillArgs::states, &gdn::StateArgs::indices>,
     [](const auto& p, const auto& extent) {
       return p.states.location == gdn::StateLocation::kPool
                  ? vector_tensor(p.states.index_dtype, extent.sequences())
                  : Tensor{};
     }},
    {"state_out_indices", GdnTensor::kStateOutIndices, GdnKind::kIndices,
     member<&gdn::PrefillArgs::states, &gdn::StateArgs::out_indices>,
     [](const auto& p, const auto& extent) {
       return p.states.location == gdn::StateLocation::kPool && extent.write_indices
                  ? vector_tensor(p.states.index_dtype, extent.sequences())
                  : Tensor{};
     }},
    {"checkpoints", GdnTensor::kCheckpoints, GdnKind::kCheckpoints,
     member<&gdn::PrefillArgs::checkpoints>,
     [](const auto& p, const auto& extent) {
       return p.checkpoints == gdn::Checkpoints::kNone ? Tensor{}
                                                       : matrix_tensor(p, extent.checkpoints);
     }},
    {"checkpoint_cu_starts", GdnTensor::kCheckpointCuStarts, GdnKind::kBounds,
     member<&gdn::PrefillArgs::checkpoint_cu_starts>,
     [](const auto& p, const auto& extent) {
       return p.varlen && p.checkpoints != gdn::Checkpoints::kNone
                  ? vector_tensor(p.cu_seqlens_dtype, extent.sequences() + 1)
                  : Tensor{};
     }},
    {"parents", GdnTensor::kParents, GdnKind::kParents, member<&GdnArgs::parents>,
     [](const auto& p, const auto& extent) {
       return extent.parents ? parents_tensor(p, extent) : Tensor{};
     }},
    {"z", GdnTensor::kZ, GdnKind::kRows, member<&GdnArgs::z>,
     [](const auto& p, const auto& extent) {
       return p.output_norm == gdn::OutputNorm::kNone
                  ? Tensor{}
                  : token_tensor(p, extent, p.dtype, p.heads.count(), p.value_dim);
     },
     [](const auto& draw) {
       return draw_rows(draw, DataStream::kZ, draw.problem.value_dim, /*raw=*/true);
     }},
    {"norm_weight", GdnTensor::kNormWeight, GdnKind::kColumns, member<&GdnArgs::norm_weight>,
     [](const auto& p, const auto&) {
       return p.output_norm == gdn::OutputNorm::kNone
                  ? Tensor{}
                  : vector_tensor(p.norm_weight_dtype, p.value_dim);
     },
     [](const auto& draw) {
       return draw_rows(draw, DataStream::kNormWeight, draw.problem.value_dim, /*raw=*/true);
     }},
    {"x", GdnTensor::kX, GdnKind::kChannels, member<&GdnArgs::conv, &gdn::DecodeConvArgs::x>,
     [](const auto& p, const auto& extent) {
       return p.conv.is_there()
                  ? token_tensor(p, extent, p.dtype, static_cast<int>(conv_split(p).end), 0)
                  : Tensor{};
     },
     [](const auto& draw) {
       return draw_rows(draw, DataStream::kX, conv_split(draw.problem).end, /*raw=*/true);
     }},
    {"conv_weight", GdnTensor::kConvWeight, GdnKind::kTaps,
     member<&GdnArgs::conv, &gdn::DecodeConvArgs::weight>,
     [](const auto& p, const auto&) {
       return p.conv.is_there() ? Tensor::contiguous(nullptr, p.conv.weight_dtype,
                                                     {conv_split(p).end, p.conv.width})
                                : Tensor{};
     },
     [](const auto& draw) {
       return draw_taps(draw, DataStream::kConvWeight, draw.problem.conv.width);
     }},
    {"conv_bias", GdnTensor::kConvBias, GdnKind::kTaps,
     member<&GdnArgs::conv, &gdn::DecodeConvArgs::bias>,
     [](const auto& p, const auto&) {
       return p.conv.is_there() && p.conv.has_bias
                  ? vector_tensor(p.conv.weight_dtype, conv_split(p).end)
                  : Tensor{};
     },
     [](const auto& draw) { return draw_taps(draw, DataStream::kConvBias, 1); }},
    {"conv_state", GdnTensor::kConvState, GdnKind::kConvStates,
     member<&GdnArgs::conv, &gdn::DecodeConvArgs::in>,
     [](const auto& p, const auto& extent) {
       return p.conv.is_there() && (p.states.has_initial || p.states.store)
                  ? conv_state_tensor(p, extent)
                  : Tensor{};
     },
     [](const auto& draw) {
       return draw_rows(draw, DataStream::kConvState, conv_split(draw.problem).end, /*raw=*/true);
     }},
    {"conv_state_out", GdnTensor::kConvStateOut, GdnKind::kConvStates,
     member<&GdnArgs::conv, &gdn::DecodeConvArgs::out>,
     [](const auto& p, const auto& extent) {
       return p.conv.is_there() && extent.separate_out ? conv_state_tensor(p, extent) : Tensor{};
     }},
};

// Of a sequence of so many tokens: a random tree.
std::vector<std::int64_t> draw_parents(const DataOptions& data, std::int64_t n,
                                       std::int64_t tokens);

// The tensors that the problem uses, without data.
GdnArgs tensors_of(const GdnProblem& problem, const GdnExtent& extent);

inline const GdnTensorInfo& info_of(GdnTensor tensor) {
  return kTensors[static_cast<std::size_t>(tensor)];
}
inline Tensor& tensor_of(GdnArgs& args, GdnTensor tensor) { return info_of(tensor).in(args); }
inline const Tensor& tensor_of(const GdnArgs& args, GdnTensor tensor) {
  return info_of(tensor).in(const_cast<GdnArgs&>(args));
}

std::int64_t elements_of(const Tensor& tensor);
std::size_t bytes_of(const Tensor& tensor);

// How many checkpoints a sequence has.
std::int64_t checkpoints_of(const GdnProblem& problem, std::int64_t tokens);

// What a launch must at least move: every operand, and every state that is read or written, once;
// vectors of heads and bounds of sequences, which are next to nothing, not.
std::int64_t least_bytes(const GdnProblem& problem, const GdnExtent& extent);

}  // namespace cubinery
