// All kernels of an operator at once.
#pragma once

#include <vector>

#include "cubinery/context.h"

namespace cubinery {

// context.get() of every spec, in their order; or the first error, in their order.  What has to be
// compiled is compiled at the same time, on threads that end before the call does.
Result<std::vector<Kernel>> get_kernels(const Context& context,
                                        const std::vector<KernelSpec>& specs);

}  // namespace cubinery
