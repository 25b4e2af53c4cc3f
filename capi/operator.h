// What the C functions of all operators share.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "capi/arguments.h"
#include "capi/dl_tensor.h"
#include "capi/documents.h"
#include "capi/handles.h"
#include "capi/last_error.h"
#include "capi/tensors.h"

namespace cubinery::capi {

// What stands behind an operator's handle.
template <class Operator>
struct OperatorHandle {
  Operator value;
  int device;
};

// `from` and `to`: the same list of capi/tensors.h for the two structs.
Status bind_tensors(std::string_view op, const auto& from, int device, const auto& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto& [name, tensor] = from[i];
    CUBINERY_RETURN_IF_ERROR(from_dlpack({op, name}, *tensor, device, to[i].tensor));
  }
  return {};
}

inline Status bind_enable_pdl(std::string_view op, std::int64_t from, bool* to) {
  if (from != 0 && from != 1) {
    return cubinery::invalid({op, "enable_pdl"}, fmt::format("is {}; accepted: 0, 1", from));
  }
  *to = from == 1;
  return {};
}

// What the arguments of every operator with outputs have besides tensors.
template <class C, class Cpp>
Status bind_numbers(std::string_view op, const C& from, Cpp* to) {
  to->scratch_slot = from.scratch_slot;
  if (from.scale != nullptr) to->scale = *from.scale;
  return bind_enable_pdl(op, from.enable_pdl, &to->enable_pdl);
}

// What the arguments of every operator with an o have.
template <class C, class Cpp>
Status bind_shared(std::string_view op, const C& from, int device, Cpp* to) {
  CUBINERY_RETURN_IF_ERROR(bind_tensors(op, shared_tensors(from), device, shared_tensors(*to)));
  return bind_numbers(op, from, to);
}

template <class Problem, class Handle>
Status create(const CubineryContext* context, const char* problem, std::string_view name,
              Handle** handle) {
  CUBINERY_RETURN_IF_ERROR(cleared(name, handle));
  CUBINERY_RETURN_IF_ERROR(not_null("context", context));
  CUBINERY_RETURN_IF_ERROR(not_null("problem", problem));
  const Result<Problem> parsed = Problem::from_json(problem);
  if (!parsed) return parsed.error().clone();
  auto prepared = context->value.prepare(*parsed);
  if (!prepared) return std::move(prepared).error();
  *handle = new Handle{{*std::move(prepared), context->value.device()}};
  return {};
}

inline Status not_negative(std::string_view name, std::int64_t value) {
  if (value >= 0) return {};
  return Status(Code::kInvalidArgument, fmt::format("{} is {}; accepted: 0 or more", name, value));
}

struct NamedNumber {
  std::string_view name;
  std::int64_t value;
};

// What an operator launches for a size, whose numbers are these, as text for cubinery_free_text().
template <class Handle, class Size>
int choice(std::string_view name, const Handle* handle, std::initializer_list<NamedNumber> numbers,
           const Size& size, char** text) {
  return guarded([&]() -> Status {
    CUBINERY_RETURN_IF_ERROR(cleared("choice", text));
    CUBINERY_RETURN_IF_ERROR(not_null(name, handle));
    for (const NamedNumber& number : numbers) {
      CUBINERY_RETURN_IF_ERROR(not_negative(number.name, number.value));
    }
    const Choice choice = handle->value.choice(size);
    *text = json_text({{"path", choice.path},
                       {"configuration", choice.configuration},
                       {"rung", to_string(choice.rung)},
                       {"why", choice.why}});
    return {};
  });
}

}  // namespace cubinery::capi
