#include "runtime/gdn/problem_check.h"

#include <fmt/format.h>

#include "common/key_rules.h"

namespace cubinery::gdn {
namespace {

Status check_divides(std::string_view op, std::string_view name, int count, int heads) {
  if (count >= 1 && heads % count == 0) return {};
  return bad_field(
      op, name, value_text(count),
      fmt::format("a divisor of {}, the largest of q_heads, k_heads and v_heads", heads));
}

}  // namespace

Status bad_field(std::string_view op, std::string_view field, std::string_view value,
                 std::string_view accepted) {
  return Status(Code::kInvalidArgument,
                fmt::format("{}: {} = {}; accepted: {}", op, field, value, accepted));
}

Status check_heads(std::string_view op, int q_heads, int k_heads, int v_heads) {
  // v_heads first: the usual mistake is a tensor-parallel split that leaves groups uneven.
  if (v_heads > k_heads && k_heads >= 1 && v_heads % k_heads != 0) {
    return bad_field(op, "v_heads", value_text(v_heads),
                     fmt::format("a multiple of k_heads = {}", k_heads));
  }
  const int heads = std::max({q_heads, k_heads, v_heads});
  CUBINERY_RETURN_IF_ERROR(check_divides(op, "q_heads", q_heads, heads));
  CUBINERY_RETURN_IF_ERROR(check_divides(op, "k_heads", k_heads, heads));
  return check_divides(op, "v_heads", v_heads, heads);
}

Status check_dim(std::string_view op, std::string_view name, int dim) {
  if (is_head_dim(dim)) return {};
  return bad_field(op, name, value_text(dim), "multiples of 16 from 16 to 256");
}

}  // namespace cubinery::gdn
