// The choices that only gdn::Conv leaves to its caller.  Compiled by the host and by NVRTC: no
// includes.  Persistent: names are part of kernel identities.
#pragma once

namespace cubinery::gdn {

// What a convolution's sums go through.
enum class Activation : int {
  kNone,
  kSilu,  // x / (1 + exp(-x))
};

// Which dimension of a convolution's state [channels, columns] is innermost in memory.
enum class ConvStateLayout : int {
  kColumns,   // columns (FLA, causal-conv1d, Transformers, SGLang)
  kChannels,  // channels (vLLM)
};

}  // namespace cubinery::gdn
