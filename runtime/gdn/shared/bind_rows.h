// Tensors of tokens: rows and numbers of each token and head.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "cubinery/fields.h"
#include "runtime/gdn/shared/args_binding.h"

namespace cubinery::gdn {

// The dimensions of an operator's tensors of tokens and heads, and which of them is what.
struct TokenForm {
  static constexpr std::size_t kNone = 4;  // no such dimension

  std::array<Dim, 3> dims{};
  std::size_t rank = 0;       // of dims
  std::size_t batch = kNone;  // packed tensors have none
  std::size_t token = kNone;  // one step of decoding has none
  std::size_t head = kNone;   // each tensor has an extent of its own here, or no such dimension
  ExtraDim extra = ExtraDim::kNone;
};

// Of tensors that count tokens only, or channels behind them.  Requires: heads come last.
inline TokenForm without_heads(TokenForm form) {
  form.head = TokenForm::kNone;
  --form.rank;
  return form;
}

// Of a tensor of tokens; 0 where it has no such dimension.
struct RowStrides {
  long long batch, token, head;
  long long element;  // of a row
};

// The form's dimensions, `heads` among them where it has those, then `row` if there is one.
Status check_tokens(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, const Dim* row, RowStrides* strides);

inline void set(const RowStrides& from, TokenStrides* to) {
  *to = {.batch = from.batch, .token = from.token, .head = from.head};
}
inline void set(const RowStrides& from, RequestStrides* to) {
  *to = {.request = from.batch, .head = from.head};
}

// Rows of so many elements, next to each other.
template <class Strides>
Status check_rows(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                  const Dim& heads, const Dim& row, Strides* strides) {
  RowStrides found{};
  CUBINERY_RETURN_IF_ERROR(check_tokens(name, x, dtype, form, heads, &row, &found));
  set(found, strides);
  return check_innermost(name, found.element);
}

// Whether all rows start at multiples of 16 bytes.
bool rows_aligned(const Tensor& x);

// q, k, v or z, as the table says.
template <class Spec, class Problem, class Strides>
Status bind_input_rows(std::string_view op, const Spec& spec, const Problem& problem,
                       const Tensor& x, const TokenForm& form, InputRows<Strides>* rows) {
  const Dim heads = dim_of(problem, spec.info.axes[2]), dim = dim_of(problem, spec.info.axes[3]);
  CUBINERY_RETURN_IF_ERROR(
      check_rows({op, spec.info.name}, x, spec.type(problem), form, heads, dim, &rows->stride));
  rows->data = x.data;
  rows->group = problem.heads.count() / static_cast<int>(heads.extent);
  rows->aligned = rows_aligned(x);
  return {};
}

template <class Problem, class Args, class Params>
Status bind_o(const Problem& problem, const Args& args, const TokenForm& form, Params* p) {
  constexpr TensorName kName{Fields<Problem>::kName, tensors::kO.info.name};
  const Dim heads = dim_of(problem, Axis::kHeads), dim = dim_of(problem, Axis::kValueDim);
  CUBINERY_RETURN_IF_ERROR(
      check_rows(kName, args.o, problem.output_dtype, form, heads, dim, &p->o.stride));
  p->o.data = args.o.data;
  return check_no_overlap(kName, args.o);
}

// q, k, v and o.
template <class Problem, class Args, class Params>
Status bind_rows(const Problem& problem, const Args& args, const TokenForm& form, Params* p) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  CUBINERY_RETURN_IF_ERROR(bind_input_rows(kOp, tensors::kQ, problem, args.q, form, &p->q));
  CUBINERY_RETURN_IF_ERROR(bind_input_rows(kOp, tensors::kK, problem, args.k, form, &p->k));
  CUBINERY_RETURN_IF_ERROR(bind_input_rows(kOp, tensors::kV, problem, args.v, form, &p->v));
  return bind_o(problem, args, form, p);
}

// A number for each token and head, as the table says.
template <class Spec, class Problem, class Strides>
Status bind_scalars(std::string_view op, const Spec& spec, const Problem& problem, const Tensor& x,
                    const TokenForm& form, const Dim& heads, Scalars<Strides>* scalars) {
  if (!is_due(spec, problem, x)) return check_absent(op, spec, problem, x);
  RowStrides found{};
  CUBINERY_RETURN_IF_ERROR(
      check_tokens({op, spec.info.name}, x, spec.type(problem), form, heads, nullptr, &found));
  scalars->data = x.data;
  set(found, &scalars->stride);
  return {};
}

}  // namespace cubinery::gdn
