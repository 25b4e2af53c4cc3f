// What ptxas is told about the order of instructions.
#pragma once

namespace cubinery::dev {

// Keeps the loads behind this point behind it.  ptxas loads as far ahead as a block of straight
// code reaches, be it until registers run out; it does not load ahead of a branch.  Requires:
// `never` is false, and the compiler cannot know.
//
// A way round one compiler, found with NVRTC 13.0: tests/templates/compile_test.cc fails when a
// kernel spills in spite of it, and when it would not spill without it.
__device__ inline void stop_loading_ahead(bool never) {
  if (never) __trap();
}

}  // namespace cubinery::dev
