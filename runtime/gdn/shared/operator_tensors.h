// The tables of the operators' tensors, in the order in which C, Python and the documents have
// them.
#pragma once

#include <tuple>

#include "cubinery/gdn_commit.h"
#include "cubinery/gdn_conv.h"
#include "cubinery/gdn_decode.h"
#include "cubinery/gdn_prefill.h"
#include "cubinery/gdn_verify.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery::gdn {

template <>
struct Tensors<DecodeArgs> {
  using Problem = DecodeProblem;
  static constexpr std::size_t kPositional = 5;
  static constexpr TensorId kInstead = TensorId::kX;
  static constexpr auto kList =
      std::tuple_cat(optional_operand_tensors(), gate_tensors(),
                     std::tuple{PlacedTensor{tensors::kO, CUBINERY_IN(o)}}, state_tensors(),
                     norm_tensors(), front_conv_tensors());
};

// Of prefills and verifications: q, k, v, gates and o.
constexpr auto token_tensors() {
  return std::tuple_cat(operand_tensors(), gate_tensors(),
                        std::tuple{PlacedTensor{tensors::kO, CUBINERY_IN(o)}});
}

template <>
struct Tensors<PrefillArgs> {
  using Problem = PrefillProblem;
  static constexpr std::size_t kPositional = 5;
  static constexpr auto kList = std::tuple_cat(
      token_tensors(), state_tensors(),
      std::tuple{PlacedTensor{tensors::kCuSeqlens, CUBINERY_IN(cu_seqlens)}}, checkpoint_tensors());
};

template <>
struct Tensors<VerifyArgs> {
  using Problem = VerifyProblem;
  static constexpr std::size_t kPositional = 5;
  static constexpr auto kList =
      std::tuple_cat(token_tensors(), state_tensors(),
                     std::tuple{PlacedTensor{tensors::kCuSeqlens, CUBINERY_IN(cu_seqlens)},
                                PlacedTensor{tensors::kAccepted, CUBINERY_IN(accepted)},
                                PlacedTensor{tensors::kParents, CUBINERY_IN(parents)}});
};

// Operands of one layer; a table of layers stands for them.
template <>
struct Tensors<CommitLayer> {
  using Problem = CommitProblem;
  static constexpr auto kList = layer_tensors();
};

// Of a commit itself.
namespace commit_tensors {

inline constexpr auto kLayers = spec("what table() made, without gaps",
                                     {"layers",
                                      TensorId::kLayers,
                                      TensorKind::kLayers,
                                      {Axis::kLayers, Axis::kWords},
                                      Access::kRead,
                                      "i64",
                                      true},
                                     [](const auto&) { return DType::kI64; });
inline constexpr auto kAccepted =
    spec("so many tokens of each request are accepted; absent: all of them",
         tensors::vector("accepted", TensorId::kAccepted, TensorKind::kCounts, Axis::kSequences,
                         "accepted_dtype", true),
         CUBINERY_TYPE(accepted_dtype));

}  // namespace commit_tensors

// Those of its one layer, which are absent with a table of layers, then its own.
template <>
struct Tensors<CommitArgs> {
  using Problem = CommitProblem;
  static constexpr std::size_t kPositional = 4;
  static constexpr TensorId kInstead = TensorId::kLayers;
  static constexpr auto kList = std::tuple_cat(
      tensors_of_layer(),
      std::tuple{PlacedTensor{commit_tensors::kLayers, CUBINERY_IN(layers)},
                 PlacedTensor{commit_tensors::kAccepted, CUBINERY_IN(accepted)},
                 PlacedTensor{tensors::kCuSeqlens, CUBINERY_IN(cu_seqlens)},
                 PlacedTensor{tensors::kStateIndices, CUBINERY_IN(state_indices)},
                 PlacedTensor{tensors::kStateOutIndices, CUBINERY_IN(state_out_indices)}});
};

// Of a convolution by itself.
namespace conv_tensors {

constexpr TensorInfo written(TensorInfo info) {
  info.access = Access::kWritten;
  return info;
}
constexpr TensorInfo named(TensorInfo info, std::string_view name, std::string_view type_field) {
  info.name = name;
  info.type_field = type_field;
  return info;
}
// States and checkpoints, of a convolution's form.
constexpr TensorInfo formed(TensorInfo info, TensorKind kind) {
  info.kind = kind;
  const Axis rows = info.axes[0];
  info.axes = tensors::kConvStateAxes;
  info.axes[0] = rows;
  return info;
}

inline constexpr Absence kNoSplit{"split_qkv is false", CUBINERY_WHERE(!p.split_qkv)};
inline constexpr Absence kSplit{"split_qkv is true", CUBINERY_WHERE(p.split_qkv)};

inline constexpr auto kF32 = [](const auto&) { return DType::kF32; };

inline constexpr auto kWeight =
    spec(named(tensors::kWeightInfo, "weight", "weight_dtype"), CUBINERY_TYPE(weight_dtype));
inline constexpr auto kBias =
    spec(named(tensors::kBiasInfo, "bias", "weight_dtype"), CUBINERY_TYPE(weight_dtype),
         Absence{"has_bias is false", CUBINERY_WHERE(!p.has_bias)});
inline constexpr auto kY = spec(
    {"y", TensorId::kY, TensorKind::kChannels, tensors::kX.info.axes, Access::kWritten, "dtype"},
    CUBINERY_TYPE(dtype), kSplit);
inline constexpr auto kQ = spec(written(tensors::kQ.info), CUBINERY_TYPE(dtype), kNoSplit);
inline constexpr auto kK = spec(written(tensors::kK.info), CUBINERY_TYPE(dtype), kNoSplit);
inline constexpr auto kV = spec(written(tensors::kV.info), CUBINERY_TYPE(dtype), kNoSplit);
inline constexpr auto kA =
    spec("the decay's input", tensors::decays("a", TensorId::kA, "gate_dtype"),
         CUBINERY_TYPE(inputs.gate_dtype), tensors::kNoGate);
inline constexpr auto kB = spec("beta's logit", tensors::scalars("b", TensorId::kB, "beta_dtype"),
                                CUBINERY_TYPE(inputs.beta_dtype), tensors::kNoBeta);
inline constexpr auto kALog = spec(tensors::kALog.info, tensors::kALog.type, tensors::kNoGate);
inline constexpr auto kDtBias =
    spec(tensors::kDtBias.info, tensors::kDtBias.type, tensors::kNoGate);
inline constexpr auto kG =
    spec("the decay's logarithm", tensors::decays("g", TensorId::kG, "f32", Access::kWritten), kF32,
         tensors::kNoGate);
inline constexpr auto kBeta = spec(
    tensors::scalars("beta", TensorId::kBeta, "f32", Access::kWritten), kF32, tensors::kNoBeta);
inline constexpr auto kHasInitialState = spec(
    "whether a sequence starts from its state, or from zeros; absent: all do",
    tensors::vector("has_initial_state", TensorId::kHasInitialState, TensorKind::kFlags,
                    Axis::kSequences, "bool", true),
    [](const auto&) { return DType::kBool; },
    Absence{"the problem's has_initial_state is false", CUBINERY_WHERE(!p.states.has_initial)});
inline constexpr auto kState = spec(formed(tensors::kState.info, TensorKind::kConvStates),
                                    CUBINERY_TYPE(states.dtype), tensors::kNoState);
inline constexpr auto kStateOut = spec(formed(tensors::kStateOut.info, TensorKind::kConvStates),
                                       CUBINERY_TYPE(states.dtype), tensors::kNotStored);
inline constexpr auto kCheckpoints =
    spec(formed(tensors::kCheckpoints.info, TensorKind::kCheckpoints), CUBINERY_TYPE(states.dtype),
         tensors::kNoCheckpoints);

}  // namespace conv_tensors

// Random numbers of the harness are drawn by the order of this table.
template <>
struct Tensors<ConvArgs> {
  using Problem = ConvProblem;
  static constexpr std::size_t kPositional = 3;
  static constexpr auto kList = std::tuple_cat(
      std::tuple{PlacedTensor{tensors::kX, CUBINERY_IN(x)},
                 PlacedTensor{conv_tensors::kWeight, CUBINERY_IN(weight)},
                 PlacedTensor{conv_tensors::kBias, CUBINERY_IN(bias)},
                 PlacedTensor{conv_tensors::kY, CUBINERY_IN(y)},
                 PlacedTensor{conv_tensors::kQ, CUBINERY_IN(q)},
                 PlacedTensor{conv_tensors::kK, CUBINERY_IN(k)},
                 PlacedTensor{conv_tensors::kV, CUBINERY_IN(v)},
                 PlacedTensor{conv_tensors::kA, CUBINERY_IN(a)},
                 PlacedTensor{conv_tensors::kB, CUBINERY_IN(b)},
                 PlacedTensor{conv_tensors::kALog, CUBINERY_IN(A_log)},
                 PlacedTensor{conv_tensors::kDtBias, CUBINERY_IN(dt_bias)},
                 PlacedTensor{conv_tensors::kG, CUBINERY_IN(g)},
                 PlacedTensor{conv_tensors::kBeta, CUBINERY_IN(beta)},
                 PlacedTensor{tensors::kCuSeqlens, CUBINERY_IN(cu_seqlens)},
                 PlacedTensor{conv_tensors::kHasInitialState, CUBINERY_IN(has_initial_state)},
                 PlacedTensor{tensors::kAccepted, CUBINERY_IN(accepted)},
                 PlacedTensor{conv_tensors::kState, CUBINERY_IN(state)},
                 PlacedTensor{conv_tensors::kStateOut, CUBINERY_IN(state_out)},
                 PlacedTensor{tensors::kStateIndices, CUBINERY_IN(state_indices)},
                 PlacedTensor{tensors::kStateOutIndices, CUBINERY_IN(state_out_indices)},
                 PlacedTensor{conv_tensors::kCheckpoints, CUBINERY_IN(checkpoints)},
                 PlacedTensor{tensors::kCheckpointCuStarts, CUBINERY_IN(checkpoint_cu_starts)}});
};

}  // namespace cubinery::gdn
