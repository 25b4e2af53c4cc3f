// error: nullptr has no type of its own
#include "cubinery/kernel.h"

cubinery::Status launch(const cubinery::Kernel& kernel) {
  return kernel.launch(nullptr, {.block = {32}}, nullptr, 1.0f);
}
