// All kernels of an operator at once.  Together they wait for other processes as long as one may.
#pragma once

#include <vector>

#include "cubinery/context.h"

namespace cubinery {

// context.get() of every spec, in their order; or the first error, in their order.  What has to be
// compiled is compiled at the same time, on threads that end before the call does.  What the cache
// has is loaded in turn: the driver loads one module at a time, and threads that wait for it cost
// more than they save (five kernels on an H200: 1.75 ms on threads, 1.23 in turn).
Result<std::vector<Kernel>> get_kernels(const Context& context,
                                        const std::vector<KernelSpec>& specs);

// context.compile() of every spec, in their order, or the first error in it, behind which no other
// is begun; as many at the same time as there are processors, offline one.  Options::log is told of
// each that was compiled.
Result<std::vector<CompiledKernel>> compile_kernels(const Context& context,
                                                    const std::vector<KernelSpec>& specs);

}  // namespace cubinery
