// error: an array is no kernel argument
#include "cubinery/kernel.h"

cubinery::Status launch(const cubinery::Kernel& kernel) {
  const float factors[4] = {1, 2, 3, 4};
  return kernel.launch(nullptr, {.block = {32}}, factors);
}
