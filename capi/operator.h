// What the C functions of all operators share.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "capi/arguments.h"
#include "capi/dl_tensor.h"
#include "capi/documents.h"
#include "capi/handles.h"
#include "capi/last_error.h"
#include "runtime/gdn/operators.h"

namespace cubinery::capi {

// The class of an operator's problems.
template <class Operator>
using ProblemOf = std::decay_t<decltype(std::declval<const Operator&>().problem())>;

// What stands behind an operator's handle.
template <class Of>
struct OperatorHandle {
  using Operator = Of;
  Operator value;
  int device;
};

// The tensors of C's struct, whose members the table names.
template <class Args, class C>
Status bind_tensors(std::string_view op, const C& from, int device, Args* to) {
  const auto given = gdn::tensors_in<Args>(from);
  const auto bound = gdn::tensors_in<Args>(*to);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const TensorName name{op, gdn::kTensorRows<Args>[i].name};
    CUBINERY_RETURN_IF_ERROR(from_dlpack(name, *given[i], device, bound[i]));
  }
  return {};
}

// A number as C has it; NULL leaves the default.
inline Status bind_number(const TensorName&, std::int64_t from, std::int64_t* to) {
  *to = from;
  return {};
}
inline Status bind_number(const TensorName& name, std::int64_t from, bool* to) {
  if (from != 0 && from != 1) {
    return cubinery::invalid(name, fmt::format("is {}; accepted: 0, 1", from));
  }
  *to = from == 1;
  return {};
}
inline Status bind_number(const TensorName&, const std::int64_t* from,
                          std::optional<std::int64_t>* to) {
  if (from != nullptr) *to = *from;
  return {};
}
Status bind_number(const TensorName&, const float* from, auto* to) {
  if (from != nullptr) *to = *from;
  return {};
}

template <class Args, class C>
Status bind_args(std::string_view op, const C& from, int device, Args* to) {
  constexpr auto& kNumbers = gdn::Numbers<Args>::kList;
  constexpr std::size_t kMembers =
      1 + gdn::kTensorRows<Args>.size() + std::tuple_size_v<std::decay_t<decltype(kNumbers)>>;
  static_assert(sizeof(C) == kMembers * sizeof(std::int64_t), "a member that no table names");
  CUBINERY_RETURN_IF_ERROR(bind_tensors(op, from, device, to));
  Status status;
  const auto bind = [&](const auto& number) {
    status = bind_number({op, number.name}, number.in(from), &number.in(*to));
    return status.ok();
  };
  std::apply([&](const auto&... all) { static_cast<void>((bind(all) && ...)); }, kNumbers);
  return status;
}

// `more`: what the operator takes besides.
template <class Handle, class C, class... More>
int launch(std::string_view name, const Handle* handle, void* stream, const C* args,
           const More&... more) {
  return reported([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(not_null(name, handle));
    C given;
    CUBINERY_RETURN_IF_ERROR(read_struct("args", args, &given));
    using Problem = ProblemOf<typename Handle::Operator>;
    gdn::ArgsOf<Problem> bound;
    CUBINERY_RETURN_IF_ERROR(bind_args(Fields<Problem>::kName, given, handle->device, &bound));
    return handle->value.launch(static_cast<Stream>(stream), bound, more...);
  });
}

template <class Handle>
int create(const CubineryContext* context, const char* problem, std::string_view name,
           Handle** handle) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared(name, handle));
    CUBINERY_RETURN_IF_ERROR(not_null("context", context));
    CUBINERY_RETURN_IF_ERROR(not_null("problem", problem));
    const auto parsed = ProblemOf<typename Handle::Operator>::from_json(problem);
    if (!parsed) return parsed.error().clone();
    auto prepared = context->value.prepare(*parsed);
    if (!prepared) return std::move(prepared).error();
    *handle = new Handle{{*std::move(prepared), context->value.device()}};
    return {};
  });
}

inline Status at_least(std::int64_t least, std::string_view name, std::int64_t value) {
  if (value >= least) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("{} is {}; accepted: {} or more", name, value, least));
}
inline Status not_negative(std::string_view name, std::int64_t value) {
  return at_least(0, name, value);
}

// The numbers of a size, in the order of the table.
template <class Problem, class... Given>
Status bind_size(gdn::SizeOf<Problem>* size, Given... given) {
  Status status;
  const auto bind = [&](const auto& number, std::int64_t value) {
    number.in(*size) = value;
    status = not_negative(number.name, value);
    return status.ok();
  };
  std::apply([&](const auto&... all) { static_cast<void>((bind(all, given) && ...)); },
             gdn::Numbers<gdn::ArgsOf<Problem>>::kSizes);
  return status;
}

// What an operator launches for a size, as text for cubinery_free_text().
template <class Handle, class... Given>
int choice(std::string_view name, const Handle* handle, char** text, Given... given) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("choice", text));
    CUBINERY_RETURN_IF_ERROR(not_null(name, handle));
    using Problem = ProblemOf<typename Handle::Operator>;
    gdn::SizeOf<Problem> size{};
    CUBINERY_RETURN_IF_ERROR(bind_size<Problem>(&size, given...));
    const Choice choice = handle->value.choice(size);
    *text = json_text({{"path", choice.path},
                       {"configuration", choice.configuration},
                       {"rung", to_string(choice.rung)},
                       {"why", choice.why}});
    return {};
  });
}

}  // namespace cubinery::capi
