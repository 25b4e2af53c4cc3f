// What decides how many registers a thread of gdn_conv needs, for tests of problems and of keys.
#pragma once

#include "cubinery/dtype.h"

namespace cubinery::test {

// Calls f(made) for each; `T`: gdn::ConvProblem or GdnConvKey.
template <class T, class Function>
void for_each_conv_shape(const Function& f) {
  constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (const DType dtype : kFloats) {
    for (const DType state_dtype : kFloats) {
      for (int width = 2; width <= 4; ++width) {
        for (const bool has_bias : {false, true}) {
          for (const bool whole_window : {false, true}) {
            for (int key_dim = 0; key_dim <= 256; key_dim += 8) {
              T made{.dtype = dtype,
                     .width = width,
                     .has_bias = has_bias,
                     .states = {.dtype = state_dtype, .whole_window = whole_window}};
              if (key_dim > 0) {
                made.key_dim = key_dim;
                made.split_qkv = made.inputs.use_qk_l2norm = true;
              }
              f(made);
            }
          }
        }
      }
    }
  }
}

}  // namespace cubinery::test
