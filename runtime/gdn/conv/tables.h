// The tables of the convolution: fields of its problem, tensors and numbers of its launches.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>

#include "cubinery/gdn_conv.h"
#include "cubinery/gdn_conv_names.h"
#include "cubinery/gdn_verify_names.h"
#include "runtime/gdn/shared/numbers.h"
#include "runtime/gdn/shared/problem_fields.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery {

namespace gdn {

inline constexpr std::array kConvGateModes{GateMode::kNone, GateMode::kComputed,
                                           GateMode::kLowerBound};
inline constexpr std::array kConvBetaModes{BetaMode::kOne, BetaMode::kLogit,
                                           BetaMode::kDoubledLogit};

}  // namespace gdn

template <>
struct Fields<gdn::ConvProblem> {
  static constexpr const char* kName = "gdn_conv";
  static constexpr const char* kHelp =
      "A causal convolution in front of the others: its sums, SiLU, the split into q, k and v.";
  using P = gdn::ConvProblem;
  static constexpr auto kList = field_table(
      gdn::head_fields<P>("size of q and k of a head; 8 to 256, a multiple of 8",
                          "size of v of a head; 8 to 256, a multiple of 8"),
      fixed<&P::dtype>("dtype of x, y, q, k and v", gdn::kFloats),
      fixed<&P::weight_dtype>("dtype of weight and bias", gdn::kFloats),
      fixed<&P::width>("taps of the convolution; 2 to 4"),
      fixed<&P::activation>("what the sums go through"), fixed<&P::has_bias>("there is a bias"),
      fixed<&P::split_qkv>("q, k and v are written, not y"), gdn::input_dtype_fields<P>(),
      gdn::state_dtype_fields<P>(),
      fixed<&P::cu_seqlens_dtype>("dtype of cu_seqlens and checkpoint_cu_starts (varlen)",
                                  gdn::kIntegers),
      fixed<&P::varlen>("sequences are packed behind each other, their bounds in cu_seqlens"),
      fixed<&P::states, &gdn::ConvStates::layout>(
          "of a state [channels, columns], columns are neighbours in memory (FLA, "
          "Transformers, SGLang), or channels (vLLM)")
          .named("state_layout"),
      gdn::state_slot_fields<P>(),
      fixed<&P::inputs, &gdn::Inputs::decay>(
          "g of a token and head is one number (head: Gated DeltaNet), or one for each of key_dim "
          "channels (channel: Kimi Delta Attention)"),
      fixed<&P::inputs, &gdn::Inputs::gate_mode>(
          "g is computed from A_log, a and dt_bias, by softplus (computed) or above a lower bound "
          "(lower_bound); needs split_qkv",
          gdn::kConvGateModes),
      fixed<&P::inputs, &gdn::Inputs::beta_mode>(
          "beta is computed: the sigmoid of b (logit) or twice that (doubled_logit); needs "
          "split_qkv",
          gdn::kConvBetaModes),
      fixed<&P::inputs, &gdn::Inputs::use_qk_l2norm>("q and k are normalised; needs split_qkv"),
      gdn::state_use_fields<P>(),
      fixed<&P::states, &gdn::ConvStates::whole_window>(
          "states have width columns (FLA, Transformers), not width - 1 (vLLM, SGLang)"),
      fixed<&P::stored_states>(
          "new states are those after a sequence's last token (last) or after each of up to "
          "16 tokens (every)"),
      fixed<&P::from_accepted>(
          "the number of accepted tokens says from which column of its state a request goes "
          "on, or with stored_states every from which state; needs has_initial_state and "
          "store_state"),
      fixed<&P::accepted_dtype>("dtype of accepted (from_accepted)", gdn::kIntegers),
      fixed<&P::circular_state>(
          "states are circular buffers, and cache_seqlens says where in its own a sequence goes "
          "on; needs has_initial_state and store_state"),
      fixed<&P::checkpoints>(
          "states are also kept from before tokens 0, N, 2N... (before), after tokens N, 2N... "
          "(after), or after as many tokens as checkpoint_offsets says (at); N is "
          "checkpoint_every"),
      fixed<&P::checkpoint_every>(
          "tokens from one checkpoint to the next; launches may have any multiple of it (before, "
          "after)"),
      gdn::batch_invariant_field<P>());
  static constexpr std::string_view kOutline[] = {"dtype", "width", "split_qkv", "use_qk_l2norm",
                                                  "varlen"};
  static constexpr std::string_view kNotForSpeed[] = {
      "q_heads",          "k_heads",        "v_heads",        "value_dim",
      "checkpoint_every", "accepted_dtype", "batch_invariant"};
};

namespace gdn {

// The operator's name: that of its results, and what messages begin with.
inline constexpr std::string_view kConvOp = Fields<ConvProblem>::kName;

// Of a convolution by itself.
namespace conv_tensors {

constexpr TensorInfo written(TensorInfo info) {
  info.access = Access::kWritten;
  return info;
}
constexpr TensorInfo of_type(TensorInfo info, std::string_view type_field) {
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
    spec(CUBINERY_MEMBER(weight), of_type(tensors::kWeightInfo, "weight_dtype"),
         CUBINERY_TYPE(weight_dtype));
inline constexpr auto kBias =
    spec(CUBINERY_MEMBER(bias), of_type(tensors::kBiasInfo, "weight_dtype"),
         CUBINERY_TYPE(weight_dtype), Absence{"has_bias is false", CUBINERY_WHERE(!p.has_bias)});
inline constexpr auto kY =
    spec(CUBINERY_MEMBER(y),
         {TensorId::kY, TensorKind::kChannels, tensors::kX.info.axes, Access::kWritten, "dtype"},
         CUBINERY_TYPE(dtype), kSplit);
inline constexpr auto kQ =
    spec(tensors::kQ.member(), written(tensors::kQ.info), CUBINERY_TYPE(dtype), kNoSplit);
inline constexpr auto kK =
    spec(tensors::kK.member(), written(tensors::kK.info), CUBINERY_TYPE(dtype), kNoSplit);
inline constexpr auto kV =
    spec(tensors::kV.member(), written(tensors::kV.info), CUBINERY_TYPE(dtype), kNoSplit);
inline constexpr auto kA =
    spec("the decay's input", CUBINERY_MEMBER(a), tensors::decays(TensorId::kA, "gate_dtype"),
         CUBINERY_TYPE(inputs.gate_dtype), tensors::kNoGate);
inline constexpr auto kB =
    spec("beta's logit", CUBINERY_MEMBER(b), tensors::scalars(TensorId::kB, "beta_dtype"),
         CUBINERY_TYPE(inputs.beta_dtype), tensors::kNoBeta);
inline constexpr auto kALog =
    spec(tensors::kALog.member(), tensors::kALog.info, tensors::kALog.type, tensors::kNoGate);
inline constexpr auto kDtBias =
    spec(tensors::kDtBias.member(), tensors::kDtBias.info, tensors::kDtBias.type, tensors::kNoGate);
inline constexpr auto kG =
    spec("the decay's logarithm", CUBINERY_MEMBER(g),
         tensors::decays(TensorId::kG, "f32", Access::kWritten), kF32, tensors::kNoGate);
inline constexpr auto kBeta =
    spec(CUBINERY_MEMBER(beta), tensors::scalars(TensorId::kBeta, "f32", Access::kWritten), kF32,
         tensors::kNoBeta);
inline constexpr auto kState =
    spec(tensors::kState.member(), formed(tensors::kState.info, TensorKind::kConvStates),
         CUBINERY_TYPE(states.dtype), tensors::kNoState);
// Of a circular state the other columns go on being read: it stays where it is.
inline constexpr Absence kCircular{"circular_state is true", CUBINERY_WHERE(p.circular_state)};
inline constexpr auto kStateOut =
    spec(tensors::kStateOut.member(), formed(tensors::kStateOut.info, TensorKind::kConvStates),
         CUBINERY_TYPE(states.dtype), tensors::kNotStored, kCircular);
inline constexpr auto kStateOutIndices =
    spec(tensors::kStateOutIndices.member(), tensors::kStateOutIndices.info,
         CUBINERY_TYPE(states.index_dtype), tensors::kNoPool, kCircular);
inline constexpr auto kCheckpoints = spec(
    tensors::kCheckpoints.member(), formed(tensors::kCheckpoints.info, TensorKind::kCheckpoints),
    CUBINERY_TYPE(states.dtype), tensors::kNoCheckpoints);

inline constexpr auto kCacheSeqlens = spec(
    "the inputs that a sequence has had: input i is in column i mod columns",
    CUBINERY_MEMBER(cache_seqlens),
    tensors::vector(TensorId::kCacheSeqlens, TensorKind::kCounts, Axis::kSequences, "i32"),
    [](const auto&) { return DType::kI32; },
    Absence{"circular_state is false", CUBINERY_WHERE(!p.circular_state)});

// Random numbers of the harness are drawn by this order.
inline constexpr auto kAll = std::make_tuple(
    tensors::kX, kWeight, kBias, kY, kQ, kK, kV, kA, kB, kALog, kDtBias, kG, kBeta,
    tensors::kCuSeqlens, tensors::kHasInitialState, tensors::kAccepted, kCacheSeqlens, kState,
    kStateOut, tensors::kStateIndices, kStateOutIndices, kCheckpoints, tensors::kCheckpointCuStarts,
    tensors::kCheckpointOffsets, tensors::kCheckpointSlots);

}  // namespace conv_tensors

template <>
struct Tensors<ConvArgs> {
  using Problem = ConvProblem;
  static constexpr std::size_t kPositional = 3;
  static constexpr auto kList = conv_tensors::kAll;
};

template <>
struct Numbers<ConvArgs> {
  static constexpr std::tuple kList{
      numbers::kPadSlotId, numbers::kZeroPadding, numbers::kScratchSlot, numbers::kCheckpointEvery,
      numbers::kConvScale, numbers::kLowerBound,  numbers::kMaxSeqlen,   numbers::kEnablePdl};
  static constexpr std::tuple kSizes{
      Number{CUBINERY_MEMBER(sequences), "", "B, or N"},
      Number{CUBINERY_MEMBER(tokens), "", "of all sequences: B T, or the packed total"},
      Number{CUBINERY_MEMBER(channels), "0", "of x; with split_qkv the problem says"}};
};

}  // namespace gdn
}  // namespace cubinery
