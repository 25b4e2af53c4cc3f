// Binds the tensors of one launch: the operator's table says what they are called, which dtype and
// shape they have, and whether the problem has them.
//
//   const Binder bind(problem, args, extent);
//   CUBINERY_RETURN_IF_ERROR(bind.rows<TensorId::kQ>(&params->q));
//
// Without the problem's tensor every method checks that the caller gives none.  Nothing is
// allocated, and the table is read by the compiler.
//
// An operator calls most methods once, for one tensor: inlined, they are shorter than their calls.
#pragma once

#include <string_view>

#include "cubinery/fields.h"
#include "runtime/gdn/shared/bind_rows.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery::gdn {

// A tensor, and what messages call it.
struct NamedTensor {
  TensorName name;
  const Tensor& x;
};

template <class Args>
class Binder {
 public:
  using Problem = typename Tensors<Args>::Problem;
  static constexpr std::string_view kOp = Fields<Problem>::kName;
  template <TensorId kId>
  static constexpr const TensorInfo& kInfo = placed<Args, kId>().info;
  template <TensorId kId>
  static constexpr TensorName kName{kOp, kInfo<kId>.name};

  Binder(const Problem& problem, const Args& args, const LaunchExtent& extent)
      : problem_(problem),
        args_(args),
        form_(extent.form(has_heads_first(problem))),
        sequences_(extent.sequences_dim()) {}
  // `sequences` has the name and the extent of the batch.
  Binder(const Problem& problem, const Args& args, const TokenForm& form, const Dim& sequences)
      : problem_(problem), args_(args), form_(form), sequences_(sequences) {}

  const Problem& problem() const { return problem_; }
  const Args& args() const { return args_; }
  const TokenForm& form() const { return form_; }
  const Dim& sequences() const { return sequences_; }

  template <TensorId kId>
  NamedTensor named() const {
    return {kName<kId>, placed<Args, kId>().in(args_)};
  }
  template <TensorId kId>
  DType type() const {
    return placed<Args, kId>().type(problem_);
  }
  // A dimension of those that the problem and the batch have.
  Dim dim(Axis axis) const {
    if (axis == Axis::kSequences) return sequences_;
    if (axis == Axis::kBounds) return {"N + 1", sequences_.extent + 1};
    if (axis == Axis::kHeads) return {"heads", heads_};
    return dim_of(problem_, axis);
  }

  // Whether the tensor is to be bound: the problem has it, and it is there or must be.
  template <TensorId kId>
  bool is_due() const {
    return placed<Args, kId>().why_absent(problem_).empty() &&
           (named<kId>().x.present() || !may_be_absent(problem_, kInfo<kId>.optional));
  }
  // That those are absent that the problem does not have.
  template <TensorId kId, TensorId... kMore>
  Status check_absent() const {
    if (const Tensor& x = named<kId>().x; x.present()) {
      const std::string_view why = placed<Args, kId>().why_absent(problem_);
      if (!why.empty()) return cubinery::check_absent(kName<kId>, x, why);
    }
    if constexpr (sizeof...(kMore) > 0) {
      return check_absent<kMore...>();
    } else {
      return {};
    }
  }

  // A number for each of something, or a row.
  template <TensorId kId>
  [[gnu::always_inline]] Status vector(StridedVector* vector) const {
    if (!is_due<kId>()) return check_absent<kId>();
    constexpr Axis kRow = kInfo<kId>.axes[1];
    const Tensor& x = named<kId>().x;
    const Dim of = dim(kInfo<kId>.axes[0]);
    if constexpr (kRow != Axis::kNone) {
      if (has_axis(problem_, kRow)) {
        return bind_rows_of(kName<kId>, x, type<kId>(), of, dim(kRow), vector);
      }
    }
    return bind_vector(kName<kId>, x, type<kId>(), of, vector);
  }

  // A row for each token and head, of q, k, v or z.
  template <TensorId kId, class Strides>
  [[gnu::always_inline]] Status rows(InputRows<Strides>* rows) const {
    if (!is_due<kId>()) return check_absent<kId>();
    const Tensor& x = named<kId>().x;
    CUBINERY_RETURN_IF_ERROR(check_tokens_of<kId>(&rows->stride));
    rows->data = x.data;
    rows->group = heads_ / static_cast<int>(dim(kInfo<kId>.axes[2]).extent);
    rows->aligned = rows_aligned(x);
    return {};
  }

  // A number for each token, or for each and a head, or a row of them.
  template <TensorId kId, class Strides>
  [[gnu::always_inline]] Status scalars(Scalars<Strides>* scalars) const {
    if (!is_due<kId>()) return check_absent<kId>();
    scalars->data = named<kId>().x.data;
    return check_tokens_of<kId>(&scalars->stride);
  }

  // What is written for each token and head.
  template <TensorId kId, class Strides>
  [[gnu::always_inline]] Status outputs(OutputRows<Strides>* rows) const {
    if (!is_due<kId>()) return check_absent<kId>();
    CUBINERY_RETURN_IF_ERROR(check_tokens_of<kId>(&rows->stride));
    rows->data = named<kId>().x.data;
    return check_no_overlap(kName<kId>, named<kId>().x);
  }

  // q, k, v and o.
  template <class Params>
  [[gnu::always_inline]] Status tokens(Params* params) const {
    CUBINERY_RETURN_IF_ERROR(rows<TensorId::kQ>(&params->q));
    CUBINERY_RETURN_IF_ERROR(rows<TensorId::kK>(&params->k));
    CUBINERY_RETURN_IF_ERROR(rows<TensorId::kV>(&params->v));
    return outputs<TensorId::kO>(&params->o);
  }

  // Given, or what they are made of.
  template <TensorId kDecay = TensorId::kG, TensorId kStrength = TensorId::kBeta, class Strides>
  [[gnu::always_inline]] Status gates(GateParams<Strides>* params) const {
    CUBINERY_RETURN_IF_ERROR(scalars<kDecay>(&params->g));
    CUBINERY_RETURN_IF_ERROR(scalars<kStrength>(&params->beta));
    CUBINERY_RETURN_IF_ERROR(vector<TensorId::kALog>(&params->A_log));
    return vector<TensorId::kDtBias>(&params->dt_bias);
  }
  Status lower_bound(float* lower_bound) const {
    return bind_lower_bound(kOp, problem_.inputs.gate_mode, args_.lower_bound, lower_bound);
  }

 private:
  template <TensorId kId, class Strides>
  [[gnu::always_inline]] Status check_tokens_of(Strides* strides) const {
    if constexpr (kInfo<kId>.axes[2] == Axis::kNone) {
      return check_tokens_of<kId>(without_heads(form_), strides);
    } else {
      return check_tokens_of<kId>(form_, strides);
    }
  }
  // Elements of rows lie next to each other.
  template <TensorId kId, class Strides>
  [[gnu::always_inline]] Status check_tokens_of(const TokenForm& form, Strides* strides) const {
    constexpr Axis kHeads = kInfo<kId>.axes[2], kRow = kInfo<kId>.axes[3];
    const Tensor& x = named<kId>().x;
    const bool has_row = has_axis(problem_, kRow);
    const Dim heads = dim(kHeads), row = dim(kRow);
    if (has_usual_tokens(x, type<kId>(), form, heads.extent, has_row ? row.extent : 0, strides)) {
      return {};
    }
    RowStrides found{};
    CUBINERY_RETURN_IF_ERROR(
        check_tokens(kName<kId>, x, type<kId>(), form, heads, has_row ? &row : nullptr, &found));
    set(found, strides);
    return has_row ? check_innermost(kName<kId>, found.element) : Status();
  }

  const Problem& problem_;
  const Args& args_;
  TokenForm form_;
  Dim sequences_;
  int heads_ = problem_.heads.count();
};

}  // namespace cubinery::gdn
