// Counts the allocations of a test program.
#pragma once

#include <cstddef>

namespace cubinery::test {

// Calls of operator new in this thread so far.
std::size_t allocations();

}  // namespace cubinery::test
