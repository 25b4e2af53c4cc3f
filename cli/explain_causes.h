// Why kernels are not in the cache, a line for each cause.  Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cubinery/context.h"

namespace cubinery {

// A kernel that is not in the cache.
struct MissingKernel {
  std::string kernel;
  Explanation found;
  bool is_text = false;  // of a kernel that is given as text
};

struct MissCause {
  std::string text;                  // "nearest differ in state_dtype: f32 -> bf16"
  std::vector<std::size_t> missing;  // places in the list of missing kernels
};

// Kernels whose nearest entries share a difference share a cause, in the order in which the list
// has them first.  `fields`: the names of the problems' fields; others of a key are tuned, and a
// cause only where nothing else differs.
std::vector<MissCause> causes_of(const std::vector<MissingKernel>& missing,
                                 const std::vector<std::string>& fields);

}  // namespace cubinery
