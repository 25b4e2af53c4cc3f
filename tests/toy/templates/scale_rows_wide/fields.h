// The field table of ScaleRowsWideKey.  Persistent: names are part of kernel identities and
// results.
#pragma once

#include "cubinery/fields.h"
#include "tests/toy/templates/scale_rows_wide/key.h"

namespace cubinery {

template <>
struct Fields<ScaleRowsWideKey> {
  static constexpr const char* kName = "scale_rows_wide";
  using Params = ScaleRowsWideParams;
  static constexpr auto kList =
      field_table(fixed<&ScaleRowsWideKey::dtype>(), tuned_bits<&ScaleRowsWideKey::vec>(2, 4),
                  tuned<&ScaleRowsWideKey::threads>(64, 128, 256));
};

}  // namespace cubinery
