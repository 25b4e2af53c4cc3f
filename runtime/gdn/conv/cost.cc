#include "runtime/gdn/conv/cost.h"

#include <algorithm>

namespace cubinery::gdn {
namespace {

// From the launch to the first loads, and from the last stores to the end.
constexpr double kConvStartUs = 2.0;
// From a load to what it brings, with a GPU at work.
constexpr double kConvLatencyUs = 0.8;
// Loads that wait for each other before a run's first row: bounds, slots, the state.
constexpr double kConvFindUs = 1.2;
// Cycles of a multiprocessor for 32 outputs.
constexpr double kConvCycles = 3.2;

}  // namespace

// The time is that of the bytes, of the arithmetic, or of the warps' lives one behind the other.
double conv_us(const GdnConvKey& key, const ConvLoad& load, const Target& target) {
  const ConvGrid grid = conv_grid(key, load, target.sm_count);
  const double tokens =
      static_cast<double>(load.tokens) * (key.varlen ? 1.0 : static_cast<double>(load.sequences));
  const double outputs = tokens * static_cast<double>(load.channels);
  const double sequences = static_cast<double>(load.sequences);
  const double stored = stores_every(key) ? tokens : key.states.store ? sequences : 0;
  const double states = (key.states.has_initial ? sequences : 0) + stored;
  const double bytes = 2 * outputs * size_of(key.dtype) + states * state_columns(key) *
                                                              size_of(key.states.dtype) *
                                                              static_cast<double>(load.channels);
  const double waves = ceil_div(static_cast<double>(grid.runs) * grid.warps,
                                target.sm_count * (key.resident / 32.0));
  double life = kConvLatencyUs;
  if (takes_steps(key, load)) {
    // States wait for slots.
    life += kConvLatencyUs + 0.12 * key.together;
  } else {
    const double rows = grid.run + key.width - 1;
    life += kConvFindUs + rows * kConvLatencyUs / key.ahead / 2;
  }
  const double arithmetic = us_of(outputs / 32 * kConvCycles / target.sm_count, target);
  return kConvStartUs + std::max({bytes / copy_rate(target), arithmetic, waves * life});
}

}  // namespace cubinery::gdn
