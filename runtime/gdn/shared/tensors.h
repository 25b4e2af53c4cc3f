// The tensors of the operators' arguments: the one list of what they are called, what they look
// like, whether they are read or written, and which option of the problem needs them.
//
//   for (const auto& row : kTensorRows<PrefillArgs>) ... row.in(args), row.type(problem) ...
//
// A table is put together of specifications that operators share, each with its place in the
// arguments.  Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include "cubinery/gdn_decode_types.h"
#include "cubinery/gdn_types.h"
#include "cubinery/tensor.h"

namespace cubinery::gdn {

// All tensors that an operator may have.
enum class TensorId : std::uint8_t {
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
  kCheckpointOffsets,
  kCheckpointSlots,
  kParents,
  kZ,
  kNormWeight,
  kX,
  kConvWeight,
  kConvBias,
  kConvState,
  kConvStateOut,
  kHasInitialState,
  kY,
  kA,
  kB,
  kAccepted,
  kCacheSeqlens,
  kLayers,
  kCount,
};
inline constexpr std::size_t kTensorCount = static_cast<std::size_t>(TensorId::kCount);

// What a tensor counts.
enum class TensorKind : std::uint8_t {
  kRows,      // tokens and heads: a row each
  kScalars,   // tokens and heads: a number each, or one for each channel of k
  kChannels,  // tokens: a row of all channels
  kHeads,
  kTaps,     // channels: some numbers each
  kColumns,  // of a row of values
  kBounds,   // sequences: where they begin, and where the last ends
  kStates,
  kConvStates,
  kIndices,      // sequences: their states
  kCheckpoints,  // states, of as many rows as are kept
  kPlaces,       // sequences: of the checkpoints of each, at which offset or in which row
  kParents,      // tokens: a number each
  kFlags,        // sequences
  kCounts,       // likewise
  kLayers,       // of a commit: a record each
};
constexpr bool is_of_tokens(TensorKind kind) {
  return kind == TensorKind::kRows || kind == TensorKind::kScalars || kind == TensorKind::kChannels;
}

// A dimension, by what it counts.
enum class Axis : std::uint8_t {
  kNone,
  kSequences,  // B, or N
  kTokens,     // T, or total
  kBounds,     // N + 1
  kQHeads,
  kKHeads,
  kVHeads,
  kHeads,
  kKeyDim,
  kValueDim,
  kDecayDim,   // key_dim with decay = channel; else there is no such dimension
  kStateRows,  // of a matrix, as state_layout says
  kStateColumns,
  kChannels,
  kWidth,
  kColumns,      // of a convolution's state
  kSlots,        // of the pool; dense: sequences
  kCheckpoints,  // rows
  kOffsets,      // checkpoints of a sequence
  kLayers,
  kWords,  // of a layer's record
};
using Axes = std::array<Axis, 4>;

enum class Access : std::uint8_t { kRead, kWritten, kBoth };

// Where a tensor may be absent of those problems that have it.
enum class Optional : std::uint8_t { kNowhere, kEverywhere, kAboveBound, kWithDecayDim };
constexpr std::string_view words_of(Optional optional) {
  if (optional == Optional::kAboveBound) return "gate_mode is lower_bound";
  return optional == Optional::kWithDecayDim ? "decay is channel" : "";
}

// What is known of a tensor without the problem.
struct TensorInfo {
  TensorId id{};
  TensorKind kind{};
  Axes axes{};  // dense, heads behind tokens; without a dimension of steps
  Access access = Access::kRead;
  std::string_view type_field;  // the problem's that has its dtype, or the dtype
  Optional optional = Optional::kNowhere;
  std::string_view doc{};   // what shape, dtype and access do not say
  std::string_view name{};  // in messages and in Python

  // Dimensions that every problem's has.
  constexpr int rank() const {
    int rank = 0;
    for (const Axis axis : axes) rank += axis != Axis::kNone && axis != Axis::kDecayDim ? 1 : 0;
    return rank;
  }
};

// Where a tensor must be absent: where `holds` is true of the problem.
template <class Holds>
struct Absence {
  std::string_view words;  // "gate_mode is none"
  Holds holds;
};
template <class Holds>
Absence(std::string_view, Holds) -> Absence<Holds>;

// A member of arguments, of C's structs too, which name their members alike: in(args).
template <class In>
struct Member {
  std::string_view name;
  In in;
};
template <class In>
Member(std::string_view, In) -> Member<In>;
#define CUBINERY_MEMBER(member)                              \
  Member {                                                   \
#member, [](auto& args) -> auto& { return args.member; } \
  }

// A tensor of arguments.  in(args) is the tensor, type(problem) its dtype.
template <class In, class Type, class... Holds>
struct TensorSpec {
  TensorInfo info;
  In in;
  Type type;
  std::tuple<Absence<Holds>...> absences;
  std::string_view part{};  // of the arguments, where it is not among them itself

  constexpr Member<In> member() const { return {info.name, in}; }
  // Empty where the problem has the tensor.
  template <class Problem>
  constexpr std::string_view why_absent(const Problem& problem) const {
    std::string_view words;
    const auto look = [&](const auto& absence) {
      if (words.empty() && absence.holds(problem)) words = absence.words;
    };
    std::apply([&](const auto&... all) { (look(all), ...); }, absences);
    return words;
  }
};
template <class In, class Type, class... Holds>
constexpr TensorSpec<In, Type, Holds...> spec(Member<In> member, TensorInfo info, Type type,
                                              Absence<Holds>... absences) {
  info.name = member.name;
  return {info, member.in, type, {absences...}};
}
template <class In, class Type, class... Holds>
constexpr TensorSpec<In, Type, Holds...> spec(std::string_view doc, Member<In> member,
                                              TensorInfo info, Type type,
                                              Absence<Holds>... absences) {
  info.doc = doc;
  return spec(member, info, type, absences...);
}
// The same tensor where it is also absent for another reason.
template <class In, class Type, class... Holds, class More>
constexpr TensorSpec<In, Type, Holds..., More> also(const TensorSpec<In, Type, Holds...>& of,
                                                    Absence<More> absence) {
  return {of.info, of.in, of.type, std::tuple_cat(of.absences, std::tuple{absence})};
}

// Specialised for the arguments of each operator: `using Problem`; kList, a tuple of TensorSpec;
// kPositional: so many of them Python takes without a name; where another tensor may stand in for
// the first, kInstead: which.
template <class Args>
struct Tensors;

// A row of a table, without its types.
template <class Args>
struct TensorRow : TensorInfo {
  using Problem = typename Tensors<Args>::Problem;
  Tensor& (*in)(Args& args) = nullptr;
  DType (*type)(const Problem& problem) = nullptr;
  std::string_view (*why_absent)(const Problem& problem) = nullptr;

  const Tensor& of(const Args& args) const { return in(const_cast<Args&>(args)); }
};

namespace tables {

template <class Args, std::size_t kAt>
constexpr TensorRow<Args> tensor_row() {
  using Problem = typename Tensors<Args>::Problem;
  TensorRow<Args> row{{std::get<kAt>(Tensors<Args>::kList).info}};
  row.in = [](Args& args) -> Tensor& { return std::get<kAt>(Tensors<Args>::kList).in(args); };
  row.type = [](const Problem& problem) -> DType {
    return std::get<kAt>(Tensors<Args>::kList).type(problem);
  };
  row.why_absent = [](const Problem& problem) {
    return std::get<kAt>(Tensors<Args>::kList).why_absent(problem);
  };
  return row;
}

template <class Args, std::size_t... kAt>
constexpr auto tensor_rows(std::index_sequence<kAt...>) {
  return std::array{tensor_row<Args, kAt>()...};
}

}  // namespace tables

template <class Args>
inline constexpr auto kTensorRows = tables::tensor_rows<Args>(
    std::make_index_sequence<std::tuple_size_v<decltype(Tensors<Args>::kList)>>());

// The row of a tensor that the arguments have.
template <class Args>
constexpr const TensorRow<Args>& row_of(TensorId id) {
  for (const TensorRow<Args>& row : kTensorRows<Args>) {
    if (row.id == id) return row;
  }
  return kTensorRows<Args>.front();
}

template <class Args>
constexpr bool has_row(TensorId id) {
  return row_of<Args>(id).id == id;
}

// A tensor of the arguments with its types.  Requires: has_row().
template <class Args, TensorId kId>
constexpr const auto& placed() {
  static_assert(has_row<Args>(kId));
  return std::get<static_cast<std::size_t>(&row_of<Args>(kId) - kTensorRows<Args>.data())>(
      Tensors<Args>::kList);
}

// What a launch counts its tokens by: the first tensor of them.
template <class Args>
constexpr TensorId first_of_tokens() {
  for (const TensorRow<Args>& row : kTensorRows<Args>) {
    if (is_of_tokens(row.kind)) return row.id;
  }
  return TensorId::kCount;
}

// Where an operator's tensors lie, in the order of the table: in its arguments, or in C's.
template <class Args>
constexpr auto tensors_in(auto& args) {
  return std::apply([&](const auto&... spec) { return std::array{&spec.in(args)...}; },
                    Tensors<Args>::kList);
}

template <class Problem>
constexpr bool may_be_absent(const Problem& problem, Optional optional) {
  if (optional == Optional::kAboveBound) {
    return problem.inputs.gate_mode == GateMode::kLowerBound;
  }
  if (optional == Optional::kWithDecayDim) return problem.inputs.decay == Decay::kChannel;
  return optional == Optional::kEverywhere;
}

#define CUBINERY_TYPE(field) [](const auto& p) { return p.field; }
#define CUBINERY_WHERE(condition) [](const auto& p) { return condition; }

// The specifications that operators share.
namespace tensors {

inline constexpr Axes kTokensAxes{Axis::kSequences, Axis::kTokens, Axis::kHeads};
inline constexpr Axes kDecayAxes{Axis::kSequences, Axis::kTokens, Axis::kHeads, Axis::kDecayDim};
inline constexpr Axes kStateAxes{Axis::kSlots, Axis::kHeads, Axis::kStateRows, Axis::kStateColumns};
inline constexpr Axes kConvStateAxes{Axis::kSlots, Axis::kChannels, Axis::kColumns};

// An operator's own rows of tokens.
constexpr TensorInfo rows(TensorId id, Axis heads, Axis dim, Access access,
                          std::string_view type_field = "dtype") {
  return {id, TensorKind::kRows, {Axis::kSequences, Axis::kTokens, heads, dim}, access, type_field};
}
constexpr TensorInfo scalars(TensorId id, std::string_view type_field,
                             Access access = Access::kRead) {
  return {id, TensorKind::kScalars, kTokensAxes, access, type_field};
}
// A number for each token and head, or a row of them, as `decay` says.
constexpr TensorInfo decays(TensorId id, std::string_view type_field,
                            Access access = Access::kRead) {
  return {id, TensorKind::kScalars, kDecayAxes, access, type_field};
}
constexpr TensorInfo vector(TensorId id, TensorKind kind, Axis axis, std::string_view type_field,
                            Optional optional = Optional::kNowhere) {
  return {id, kind, {axis}, Access::kRead, type_field, optional};
}

inline constexpr auto kQ =
    spec(CUBINERY_MEMBER(q), rows(TensorId::kQ, Axis::kQHeads, Axis::kKeyDim, Access::kRead),
         CUBINERY_TYPE(dtype));
inline constexpr auto kK =
    spec(CUBINERY_MEMBER(k), rows(TensorId::kK, Axis::kKHeads, Axis::kKeyDim, Access::kRead),
         CUBINERY_TYPE(dtype));
inline constexpr auto kV =
    spec(CUBINERY_MEMBER(v), rows(TensorId::kV, Axis::kVHeads, Axis::kValueDim, Access::kRead),
         CUBINERY_TYPE(dtype));
inline constexpr auto kO =
    spec(CUBINERY_MEMBER(o),
         rows(TensorId::kO, Axis::kHeads, Axis::kValueDim, Access::kWritten, "output_dtype"),
         CUBINERY_TYPE(output_dtype));

inline constexpr Absence kNoGate{"gate_mode is none",
                                 CUBINERY_WHERE(p.inputs.gate_mode == GateMode::kNone)};
inline constexpr Absence kNoBeta{"beta_mode is one",
                                 CUBINERY_WHERE(p.inputs.beta_mode == BetaMode::kOne)};
inline constexpr Absence kGivenGate{"gate_mode is neither computed nor lower_bound",
                                    CUBINERY_WHERE(!is_computed(p.inputs.gate_mode))};
inline constexpr auto kG =
    spec("g, alpha or a, as gate_mode says", CUBINERY_MEMBER(g), decays(TensorId::kG, "gate_dtype"),
         CUBINERY_TYPE(inputs.gate_dtype), kNoGate);
inline constexpr auto kBeta =
    spec("beta or its logit, as beta_mode says", CUBINERY_MEMBER(beta),
         scalars(TensorId::kBeta, "beta_dtype"), CUBINERY_TYPE(inputs.beta_dtype), kNoBeta);
inline constexpr auto kALog = spec(
    CUBINERY_MEMBER(A_log),
    vector(TensorId::kALog, TensorKind::kHeads, Axis::kHeads, "a_log_dtype", Optional::kAboveBound),
    CUBINERY_TYPE(inputs.a_log_dtype), kGivenGate);
inline constexpr auto kDtBias =
    spec("with decay channel also [heads * key_dim]", CUBINERY_MEMBER(dt_bias),
         {TensorId::kDtBias,
          TensorKind::kHeads,
          {Axis::kHeads, Axis::kDecayDim},
          Access::kRead,
          "dt_bias_dtype",
          Optional::kWithDecayDim},
         CUBINERY_TYPE(inputs.dt_bias_dtype), kGivenGate);

inline constexpr Absence kDense{"varlen is false", CUBINERY_WHERE(!p.varlen)};
inline constexpr auto kCuSeqlens =
    spec("sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1", CUBINERY_MEMBER(cu_seqlens),
         vector(TensorId::kCuSeqlens, TensorKind::kBounds, Axis::kBounds, "cu_seqlens_dtype"),
         CUBINERY_TYPE(cu_seqlens_dtype), kDense);

inline constexpr Absence kNoState{"has_initial_state and store_state are false",
                                  CUBINERY_WHERE(!p.states.has_initial && !p.states.store)};
inline constexpr Absence kNotStored{"store_state is false", CUBINERY_WHERE(!p.states.store)};
inline constexpr Absence kNoPool{"state_location is dense",
                                 CUBINERY_WHERE(p.states.location != StateLocation::kPool)};
inline constexpr auto kState =
    spec(CUBINERY_MEMBER(state),
         {TensorId::kState, TensorKind::kStates, kStateAxes, Access::kBoth, "state_dtype"},
         CUBINERY_TYPE(states.dtype), kNoState);
inline constexpr auto kStateOut =
    spec("where new states go; absent: in place", CUBINERY_MEMBER(state_out),
         {TensorId::kStateOut, TensorKind::kStates, kStateAxes, Access::kWritten, "state_dtype",
          Optional::kEverywhere},
         CUBINERY_TYPE(states.dtype), kNotStored);
inline constexpr auto kStateIndices =
    spec("the slots to read", CUBINERY_MEMBER(state_indices),
         vector(TensorId::kStateIndices, TensorKind::kIndices, Axis::kSequences, "index_dtype"),
         CUBINERY_TYPE(states.index_dtype), kNoPool);
inline constexpr auto kStateOutIndices =
    spec("the slots to write; absent: those that are read", CUBINERY_MEMBER(state_out_indices),
         vector(TensorId::kStateOutIndices, TensorKind::kIndices, Axis::kSequences, "index_dtype",
                Optional::kEverywhere),
         CUBINERY_TYPE(states.index_dtype), kNoPool);

inline constexpr Absence kNoCheckpoints{"checkpoints is none",
                                        CUBINERY_WHERE(p.checkpoints == Checkpoints::kNone)};
inline constexpr Absence kAtOffsets{"checkpoints is at",
                                    CUBINERY_WHERE(p.checkpoints == Checkpoints::kAt)};
inline constexpr Absence kNotAtOffsets{"checkpoints is not at",
                                       CUBINERY_WHERE(p.checkpoints != Checkpoints::kAt)};
constexpr TensorInfo places(TensorId id, std::string_view type_field) {
  return {id, TensorKind::kPlaces, {Axis::kSequences, Axis::kOffsets}, Access::kRead, type_field};
}
inline constexpr auto kCheckpoints =
    spec("states that are kept besides the last", CUBINERY_MEMBER(checkpoints),
         {TensorId::kCheckpoints,
          TensorKind::kCheckpoints,
          {Axis::kCheckpoints, Axis::kHeads, Axis::kStateRows, Axis::kStateColumns},
          Access::kWritten,
          "state_dtype"},
         CUBINERY_TYPE(states.dtype), kNoCheckpoints);
inline constexpr auto kCheckpointCuStarts = spec(
    "where the checkpoints of each sequence begin", CUBINERY_MEMBER(checkpoint_cu_starts),
    vector(TensorId::kCheckpointCuStarts, TensorKind::kBounds, Axis::kBounds, "cu_seqlens_dtype"),
    CUBINERY_TYPE(cu_seqlens_dtype), kNoCheckpoints, kAtOffsets, kDense);
inline constexpr auto kCheckpointOffsets = spec(
    "tokens of the sequence that each of its checkpoints has taken in, ascending; 0 or less: there "
    "is none; absent: the launch keeps none",
    CUBINERY_MEMBER(checkpoint_offsets), places(TensorId::kCheckpointOffsets, "i32"),
    [](const auto&) { return DType::kI32; }, kNotAtOffsets);
inline constexpr auto kCheckpointSlots = spec(
    "the rows of checkpoints that they go to; negative or padding: there is none; absent: the "
    "launch keeps none",
    CUBINERY_MEMBER(checkpoint_slots), places(TensorId::kCheckpointSlots, "index_dtype"),
    CUBINERY_TYPE(states.index_dtype), kNotAtOffsets);

// Of requests that are verified.
inline constexpr auto kAccepted = spec(
    "so many tokens of the launch before were accepted; 0 is taken as 1", CUBINERY_MEMBER(accepted),
    vector(TensorId::kAccepted, TensorKind::kCounts, Axis::kSequences, "accepted_dtype"),
    CUBINERY_TYPE(accepted_dtype),
    Absence{"from_accepted is false", CUBINERY_WHERE(!p.from_accepted)});

inline constexpr auto kParents = spec(
    "the token of its request that each follows, from 0, in front of it; -1: the initial state",
    CUBINERY_MEMBER(parents),
    {TensorId::kParents,
     TensorKind::kParents,
     {Axis::kSequences, Axis::kTokens},
     Access::kRead,
     "parents_dtype"},
    CUBINERY_TYPE(parents_dtype), Absence{"tree is false", CUBINERY_WHERE(!p.tree)});

// Of the outputs' norm.
inline constexpr Absence kNoNorm{"output_norm is none",
                                 CUBINERY_WHERE(p.output_norm == OutputNorm::kNone)};
inline constexpr auto kZ = spec("the gate of the norm", CUBINERY_MEMBER(z),
                                rows(TensorId::kZ, Axis::kHeads, Axis::kValueDim, Access::kRead),
                                CUBINERY_TYPE(dtype), kNoNorm);
inline constexpr auto kNormWeight =
    spec(CUBINERY_MEMBER(norm_weight),
         vector(TensorId::kNormWeight, TensorKind::kColumns, Axis::kValueDim, "norm_weight_dtype"),
         CUBINERY_TYPE(norm_weight_dtype), kNoNorm);

inline constexpr auto kHasInitialState = spec(
    "whether a sequence starts from its state, or from zero; absent: all do",
    CUBINERY_MEMBER(has_initial_state),
    vector(TensorId::kHasInitialState, TensorKind::kFlags, Axis::kSequences, "bool",
           Optional::kEverywhere),
    [](const auto&) { return DType::kBool; },
    Absence{"the problem's has_initial_state is false", CUBINERY_WHERE(!p.states.has_initial)});

// Of the convolution in front of a decode step, which takes the place of q, k and v.
inline constexpr Absence kFromX{"with conv_width they come from x",
                                CUBINERY_WHERE(p.conv.is_there())};
inline constexpr Absence kNoConv{"conv_width is 0", CUBINERY_WHERE(!p.conv.is_there())};
inline constexpr auto kX = spec(CUBINERY_MEMBER(x),
                                {TensorId::kX,
                                 TensorKind::kChannels,
                                 {Axis::kSequences, Axis::kTokens, Axis::kChannels},
                                 Access::kRead,
                                 "dtype"},
                                CUBINERY_TYPE(dtype));
inline constexpr TensorInfo kWeightInfo{TensorId::kConvWeight,
                                        TensorKind::kTaps,
                                        {Axis::kChannels, Axis::kWidth},
                                        Access::kRead,
                                        "conv_weight_dtype"};
inline constexpr TensorInfo kBiasInfo =
    vector(TensorId::kConvBias, TensorKind::kTaps, Axis::kChannels, "conv_weight_dtype");
inline constexpr auto kConvWeight =
    spec(CUBINERY_MEMBER(conv_weight), kWeightInfo, CUBINERY_TYPE(conv.weight_dtype), kNoConv);
inline constexpr auto kConvBias =
    spec(CUBINERY_MEMBER(conv_bias), kBiasInfo, CUBINERY_TYPE(conv.weight_dtype), kNoConv,
         Absence{"has_bias is false", CUBINERY_WHERE(!p.conv.has_bias)});
inline constexpr auto kConvState =
    spec("as conv_state_layout says, without gaps", CUBINERY_MEMBER(conv_state),
         {TensorId::kConvState, TensorKind::kConvStates, kConvStateAxes, Access::kBoth,
          "conv_state_dtype"},
         CUBINERY_TYPE(conv.state_dtype), kNoConv, kNoState);
inline constexpr auto kConvStateOut =
    spec("where new ones go; absent: in place", CUBINERY_MEMBER(conv_state_out),
         {TensorId::kConvStateOut, TensorKind::kConvStates, kConvStateAxes, Access::kWritten,
          "conv_state_dtype", Optional::kEverywhere},
         CUBINERY_TYPE(conv.state_dtype), kNoConv, kNotStored);

}  // namespace tensors

// Parts of tables.

constexpr auto operand_tensors() { return std::tuple{tensors::kQ, tensors::kK, tensors::kV}; }
// Where a convolution in front may make them.
constexpr auto optional_operand_tensors() {
  return std::tuple{also(tensors::kQ, tensors::kFromX), also(tensors::kK, tensors::kFromX),
                    also(tensors::kV, tensors::kFromX)};
}
constexpr auto gate_tensors() {
  return std::tuple{tensors::kG, tensors::kBeta, tensors::kALog, tensors::kDtBias};
}
// Of prefills and verifications: q, k, v, gates and o.
constexpr auto token_tensors() {
  return std::tuple_cat(operand_tensors(), gate_tensors(), std::tuple{tensors::kO});
}
constexpr auto state_tensors() {
  return std::tuple{tensors::kState, tensors::kStateOut, tensors::kStateIndices,
                    tensors::kStateOutIndices};
}
constexpr auto layer_tensors() {
  return std::tuple_cat(std::tuple{tensors::kK, tensors::kV}, gate_tensors(),
                        std::tuple{tensors::kState, tensors::kStateOut});
}
// The same in arguments that have a member `layer`.
template <class In>
struct InLayer {
  In in;
  constexpr auto& operator()(auto& args) const { return in(args.layer); }
};
template <class In, class Type, class... Holds>
constexpr TensorSpec<InLayer<In>, Type, Holds...> in_layer(
    const TensorSpec<In, Type, Holds...>& of) {
  return {of.info, {of.in}, of.type, of.absences, "layer"};
}
constexpr auto tensors_of_layer() {
  return std::apply([](const auto&... all) { return std::tuple{in_layer(all)...}; },
                    layer_tensors());
}
constexpr auto checkpoint_tensors() {
  return std::tuple{tensors::kCheckpoints, tensors::kCheckpointCuStarts,
                    tensors::kCheckpointOffsets, tensors::kCheckpointSlots};
}
constexpr auto norm_tensors() { return std::tuple{tensors::kZ, tensors::kNormWeight}; }
// Of the convolution in front of a decode step.
constexpr auto front_conv_tensors() {
  return std::tuple{also(tensors::kX, tensors::kNoConv), tensors::kConvWeight, tensors::kConvBias,
                    tensors::kConvState, tensors::kConvStateOut};
}

}  // namespace cubinery::gdn
