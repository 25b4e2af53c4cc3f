// The field table of ScaleRowsKey.  Persistent: names are part of kernel identities and results.
#pragma once

#include "cubinery/fields.h"
#include "tests/toy/templates/scale_rows/key.h"

namespace cubinery {

template <>
struct Fields<ScaleRowsKey> {
  static constexpr const char* kName = "scale_rows";
  using Params = ScaleRowsParams;
  static constexpr auto kList =
      field_table(fixed<&ScaleRowsKey::dtype>(), tuned<&ScaleRowsKey::threads>(64, 128, 256));
};

}  // namespace cubinery
