// The field table of RmsNormKey.
#pragma once

#include "cubinery/fields.h"
#include "rms_norm/key.h"

template <>
struct cubinery::Fields<RmsNormKey> {
  static constexpr const char* kName = "rms_norm";
  using Params = RmsNormParams;
  static constexpr auto kList = field_table(fixed<&RmsNormKey::dtype>(), fixed<&RmsNormKey::cols>(),
                                            tuned<&RmsNormKey::warps>(1, 2, 4, 8));
};
