// How good a choice of tuned fields is.
#pragma once

#include <cstddef>
#include <string>

namespace cubinery {

// Best first.
enum class Rung : int {
  kExact,           // measured on this GPU, for this problem, in this bucket of shapes
  kNearestShape,    // on this GPU, for this problem, another shape
  kSimilarProblem,  // on this GPU, for a problem that differs only in what hardly changes times
  kSameArch,        // on another GPU of this architecture
  kStale,           // as any of these, but with other code of the kernels or another compiler
  kDefault,         // not measured: the cost model, or the caller's default
};
const char* to_string(Rung rung);  // "exact", "nearest shape", ...

// What is launched for some shape, and why.
struct Choice {
  std::string path{};           // the way to compute: "portable"
  std::string configuration{};  // "path=portable;warp_v=16;k_lanes=8;vec_bytes=16;warps=1"
  Rung rung = Rung::kDefault;
  // For people: which measurement decided, or why there is none that could ("no result within a
  // factor of 8").
  std::string why{};
  std::size_t index = 0;  // of choose() (cubinery/tuning.h): in TuningSpace::configurations
};

}  // namespace cubinery
