// How a convolution's tokens are spread over warps, and what that costs: the choice where nothing
// was measured.  Pure functions.
#pragma once

#include <cstdint>

#include "gdn_conv/key.h"
#include "results/target.h"

namespace cubinery::gdn {

// What a grid is made from.
struct ConvLoad {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;   // dense: of each sequence; packed: of all
  std::int64_t longest = 0;  // packed: of one sequence, as far as the host knows; 0: it does not
  std::int64_t channels = 0;
  int norm_heads = 0;
  int heads = 0;  // of the gates
};

struct ConvGrid {
  int channel_warps = 0;
  int warps = 0;             // of a run: those and the gates'
  int run = 0;               // tokens of a warp, or of one that makes gates; steps: sequences
  bool by_sequence = false;  // each run is a sequence
  int runs_of_sequence = 1;
  std::int64_t runs = 0;
};

// One token of each sequence, by the code for that.
bool takes_steps(const GdnConvKey& key, const ConvLoad& load);

// Each sequence has warps of its own: packed ones that the host knows to be short, because a run of
// tokens would take its sequences one after the other, and where each token's window is kept.
bool takes_sequences(const GdnConvKey& key, const ConvLoad& load);

// Runs of 20 to 40 tokens in whole waves of warps, of fewer where a wave would not be full.  Each
// reads the width - 1 inputs before it again.  Requires: at least one sequence and channel.
ConvGrid conv_grid(const GdnConvKey& key, const ConvLoad& load, int sm_count);

// Microseconds of one launch.
double conv_us(const GdnConvKey& key, const ConvLoad& load, const Target& target);

}  // namespace cubinery::gdn
