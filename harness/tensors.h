// The tensors of one launch, as the operators' tables have them: how they look (contiguous, as
// workloads have them, and what Layout starts from) and what must at least be moved.  Pure
// functions.
//
// All operators but the convolution are taken as a prefill: operators.h says how they look as one.
// Only trees of tokens, a norm of the outputs and a convolution in front are not a prefill's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "cubinery/gdn.h"
#include "runtime/gdn/conv/parts.h"
#include "runtime/gdn/operators.h"
#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery {

using gdn::is_of_tokens;
using gdn::TensorId;
using gdn::TensorInfo;
using gdn::TensorKind;

inline std::size_t idx(std::int64_t value) { return static_cast<std::size_t>(value); }
constexpr std::size_t index_of(TensorId id) { return static_cast<std::size_t>(id); }

constexpr std::size_t kTensorAlignment = 256;
inline std::size_t aligned(std::size_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

struct GdnProblem : gdn::PrefillProblem {
  gdn::OutputNorm output_norm = gdn::OutputNorm::kNone;
  DType norm_weight_dtype = DType::kF32;
  gdn::DecodeConv conv{};  // q, k and v are made of x
  bool tree = false;       // sequences are trees
  DType parents_dtype = DType::kI32;

  GdnProblem() = default;
  GdnProblem(const gdn::PrefillProblem& plain)  // NOLINT(google-explicit-constructor)
      : gdn::PrefillProblem(plain) {}
};

struct GdnArgs : gdn::PrefillArgs {
  Tensor parents{};
  Tensor z{};
  Tensor norm_weight{};
  Tensor x{};
  Tensor conv_weight{};
  Tensor conv_bias{};
  Tensor conv_state{};
  Tensor conv_state_out{};
  std::optional<float> norm_eps{};
};

// Of GateMode::kLowerBound where nothing else is said: that of the models that have one.
inline constexpr float kLowerBound = -5;

// What a launch's arguments say of padding.
struct Padding {
  std::optional<std::int64_t> slot_id{};
  bool zero = false;
  std::optional<std::int64_t> scratch{};

  // Whether an index means it.
  bool is(std::int64_t index) const {
    if (!slot_id) return false;
    return *slot_id < 0 ? index < 0 : index == *slot_id;
  }
  // Whether its rows are computed; else they are left alone or set to zero.
  bool is_computed() const { return scratch.has_value(); }

  template <class Args>
  void put_into(Args* args) const {
    args->pad_slot_id = slot_id;
    args->scratch_slot = scratch;
    if constexpr (requires { args->zero_padding; }) args->zero_padding = zero;
  }
};
// None, then each of what becomes of padding, by any negative index, by 0 and by one that is no
// slot.
std::vector<Padding> every_padding(std::int64_t scratch);
// What a pool's launches have, one after the other; slot 0 is nobody's.
template <class Problem>
Padding padding_in_turn(const Problem& problem, std::size_t turn) {
  if (problem.states.location != gdn::StateLocation::kPool) return {};
  const Padding all[] = {
      {.slot_id = 0}, {.slot_id = -1, .zero = true}, {.slot_id = -1, .scratch = 0}, {}};
  return all[turn % std::size(all)];
}

// Whether a pool's launch, one of several, keeps checkpoints at offsets in the pool itself.
template <class Problem>
bool keeps_in_pool(const Problem& problem, std::size_t turn) {
  return problem.states.location == gdn::StateLocation::kPool && problem.states.has_initial &&
         problem.checkpoints == gdn::Checkpoints::kAt && turn % 2 == 1;
}

// The sizes of a launch.
struct Extent {
  std::vector<std::int64_t> lengths{};  // of the sequences, in tokens; dense: all the same
  std::int64_t channels = 0;            // of a convolution by itself, like columns and steps
  std::int64_t columns = 0;             // of a state
  std::int64_t steps = 0;               // of a sequence, with stored_states every
  std::int64_t slots = 0;               // of the pool; not used with dense states
  std::int64_t checkpoints = 0;         // in all, or rows of those at offsets
  std::int64_t offsets = 0;             // of checkpoints, of each sequence
  bool checkpoints_in_pool = false;     // they have no tensor of their own
  std::int64_t spare_tokens = 0;        // packed: of no sequence
  bool separate_out = false;            // new states go to a tensor of their own
  bool write_indices = false;           // to slots of their own; not used with dense states
  bool has_flags = false;               // has_initial_state is there
  bool bare_gates = false;              // A_log and dt_bias are absent where they may be

  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int64_t tokens() const;  // of the sequences
};

// Decays of a token and head.
template <class Problem>
int decay_width(const Problem& p) {
  return gdn::has_axis(p, gdn::Axis::kDecayDim) ? p.key_dim : 1;
}

// What offsets of checkpoints are multiples of.
inline std::int64_t offset_grain(const GdnProblem& p) { return p.checkpoint_every; }
inline std::int64_t offset_grain(const gdn::ConvProblem&) { return 1; }

// Columns of a state of the convolution in front.
inline int conv_columns(const GdnProblem& p) {
  return p.conv.width - (p.conv.whole_window ? 0 : 1);
}

}  // namespace cubinery

// The table of a launch that looks as a prefill.
template <>
struct cubinery::gdn::Tensors<cubinery::GdnArgs> {
  using Problem = cubinery::GdnProblem;
  static constexpr auto kList = std::tuple_cat(
      optional_operand_tensors(), gate_tensors(), std::tuple{tensors::kO, tensors::kCuSeqlens},
      state_tensors(), checkpoint_tensors(), std::tuple{tensors::kParents}, norm_tensors(),
      front_conv_tensors(), std::tuple{tensors::kHasInitialState});
};

namespace cubinery {

template <class Problem>
using ArgsOf =
    std::conditional_t<std::is_same_v<Problem, gdn::ConvProblem>, gdn::ConvArgs, GdnArgs>;

// A table's tensors without the problem.
template <class Args>
inline constexpr auto kInfosOf = [] {
  std::array<TensorInfo, gdn::kTensorRows<Args>.size()> infos{};
  for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = gdn::kTensorRows<Args>[i];
  return infos;
}();
inline constexpr auto& kTensors = kInfosOf<GdnArgs>;  // in the order of TensorId
static_assert(kTensors.back().id == TensorId{kTensors.size() - 1});
template <class Args = GdnArgs>
constexpr const TensorInfo& info_of(TensorId id) {
  return gdn::row_of<Args>(id);
}
template <class Args>
Tensor& tensor_of(Args& args, TensorId id) {
  return gdn::row_of<Args>(id).in(args);
}
template <class Args>
const Tensor& tensor_of(const Args& args, TensorId id) {
  return gdn::row_of<Args>(id).of(args);
}

// What the dimensions of a tensor count; kNone: steps, or there is no such dimension.
using Dims = std::array<gdn::Axis, Tensor::kMaxRank>;

// The tensors of a launch, without data or with it; absent where it has none.
struct TensorSet {
  std::span<const TensorInfo> list{};               // of those that the operator may have
  std::array<Dims, gdn::kTensorCount> dims{};       // by TensorId
  std::array<Tensor, gdn::kTensorCount> tensors{};  // by TensorId
  bool varlen = false;
  bool heads_first = false;     // of tensors of tokens
  bool channels_first = false;  // channels of a convolution's states are neighbours in memory

  Tensor& operator[](TensorId id) { return tensors[index_of(id)]; }
  const Tensor& operator[](TensorId id) const { return tensors[index_of(id)]; }
  bool has(TensorId id) const { return (*this)[id].present(); }
  std::size_t bytes() const;
};

// What tensors look like; without data.
TensorSet tensors_of(const GdnProblem& problem, const Extent& extent);
TensorSet tensors_of(const gdn::ConvProblem& problem, const Extent& extent);

template <class Args>
Args args_of(const TensorSet& set) {
  Args args;
  for (const auto& row : gdn::kTensorRows<Args>) row.in(args) = set[row.id];
  return args;
}

// With channels, columns, steps and checkpoints that the problem has where they are 0: columns with
// from_accepted, and steps, as many as the longest sequence needs.
Extent completed(const GdnProblem& problem, Extent extent);
Extent completed(const gdn::ConvProblem& problem, Extent extent);

// Whether the steps of a sequence are written where they are read.
bool steps_in_place(const gdn::ConvProblem& problem, const Extent& extent);

// Numbers for each dimension of a tensor.
using PerDim = std::array<std::int64_t, Tensor::kMaxRank>;
// Dimensions from the outermost in memory to the innermost: in their order, but where channels of a
// convolution's states are neighbours.
PerDim memory_order(const TensorSet& set, const TensorInfo& info);
// Sets the strides of dimensions that lie so, with as many elements between theirs as `gaps` says.
// Returns the elements of all.
std::int64_t set_strides(Tensor* tensor, const PerDim& order, const PerDim& gaps);

std::int64_t elements_of(const Tensor& tensor);
std::size_t bytes_of(const Tensor& tensor);

// What a launch must at least move: every operand, and every state that is read or written, once;
// vectors of heads and bounds of sequences, which are next to nothing, not.
std::int64_t least_bytes(const GdnProblem& problem, const Extent& extent);
std::int64_t least_bytes(const gdn::ConvProblem& problem, const Extent& extent);

}  // namespace cubinery
