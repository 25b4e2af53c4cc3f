// error: every field of a problem must have a line of help
#include "codegen/describe.h"

struct RowsProblem {
  int rows = 1;
};

template <>
struct cubinery::Fields<RowsProblem> {
  static constexpr const char* kName = "rows";
  static constexpr auto kList = std::tuple{fixed<&RowsProblem::rows>()};
};

auto fields() { return cubinery::describe_fields<RowsProblem>(); }
