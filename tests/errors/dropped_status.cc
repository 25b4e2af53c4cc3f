// error: nodiscard
#include "cubinery/kernel.h"

void launch_twice(const cubinery::Kernel& kernel) {
  kernel.launch(nullptr, {}, 1);
  kernel.launch(nullptr, {}, 1).value();
}
