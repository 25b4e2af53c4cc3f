#include "runtime/gdn/verify_cost.h"

#include <algorithm>

#include "runtime/gdn/decode_cost.h"

namespace cubinery::gdn {
namespace {

// Instructions of a lane for each token: of a state element (two products, decay, update), of each
// of its elements of k and q (load, convert, normalise), and of each of its columns (two sums by
// shuffles, value, output).
constexpr double kElementInstructions = 4;
constexpr double kKeyInstructions = 6;
constexpr double kColumnInstructions = 40;
// Warp instructions of a multiprocessor in a cycle, as far as dependences let them.
constexpr double kIssueRate = 2.5;
// Of a warp alone: one of its four schedulers, waiting for most results.
constexpr double kLoneIssueRate = 0.35;
// Registers besides those of data_registers().
constexpr int kOtherRegisters = 56;

// The WY form.  From the launch to the loads of a warp, what needs no state, and from its stores to
// the end; a warp's life in a full multiprocessor; cycles of a multiprocessor for each warp, and
// for each state element of a lane that is read or stored.
constexpr double kWyStartUs = 4.0;
constexpr double kWyLatencyUs = 2.0;
constexpr double kWyWarpCycles = 120;
constexpr double kWyElementCycles = 1.5;
constexpr int kWyRegisters = 50;

// How often the state is stored.
template <class Key>
double stored_passes(const Key& key, std::int64_t tokens) {
  if (!key.states.store) return 0;
  return key.stored_states == StoredStates::kEvery ? static_cast<double>(tokens) : 1;
}

// The decode step that moves the same state once.
GdnDecodeKey one_step(const GdnVerifyKey& key) {
  return {.key_dim = key.key_dim,
          .value_dim = key.value_dim,
          .dtype = key.dtype,
          .output_dtype = key.output_dtype,
          .inputs = key.inputs,
          .states = key.states,
          .warp_v = key.warp_v,
          .held_v = key.warp_v,
          .k_lanes = key.k_lanes,
          .vec_bytes = key.vec_bytes,
          .warps = key.warps};
}

}  // namespace

// A step of decoding, which reads the state and may write it, then the instructions of all tokens,
// and the bytes of the states that every token writes.
double verify_us(const GdnVerifyKey& key, std::int64_t states, std::int64_t tokens,
                 const Target& target) {
  const double warps = static_cast<double>(states) * key.value_dim / key.warp_v;
  const double blocks = ceil_div(warps, key.warps);
  const double resident =
      resident_blocks({.registers = static_cast<double>(data_registers(key) + kOtherRegisters),
                       .threads = threads(key)},
                      target);
  const bool is_one_wave = blocks <= target.sm_count * resident;
  const double fullest =
      (is_one_wave ? ceil_div(blocks, target.sm_count) : blocks / target.sm_count) * key.warps;

  const double elements = key.key_dim * key.warp_v / 32.0;  // of a lane
  const double instructions = elements * kElementInstructions +
                              static_cast<double>(key.key_dim) / key.k_lanes * kKeyInstructions +
                              key.warp_v * key.k_lanes / 32.0 * kColumnInstructions;
  const double cycles =
      std::max(fullest * instructions / kIssueRate, instructions / kLoneIssueRate);
  const double more_passes = std::max(stored_passes(key, tokens) - 1, 0.0);
  const double more_bytes = more_passes * warps * elements * 32 * size_of(key.states.dtype);
  const double later = std::max(static_cast<double>(tokens) * us_of(cycles, target),
                                more_bytes / copy_rate(target) / 2);
  return decode_us(one_step(key), states, target) + later;
}

double verify_us(const GdnVerifyWyKey& key, std::int64_t states, std::int64_t tokens,
                 const Target& target) {
  const double warps = static_cast<double>(states) * key.value_dim / key.warp_v;
  const double blocks = ceil_div(warps, key.warps);
  const double resident = resident_blocks({.registers = 65536.0 / (min_blocks(key) * threads(key)),
                                           .threads = threads(key),
                                           .shared_bytes = shared_bytes(key)},
                                          target);
  const bool is_one_wave = blocks <= target.sm_count * resident;
  const double fullest =
      (is_one_wave ? ceil_div(blocks, target.sm_count) : blocks / target.sm_count) * key.warps;

  const double elements = key.key_dim * key.warp_v / 32.0;  // of a lane
  const double passes = (key.states.has_initial ? 1 : 0) + stored_passes(key, tokens);
  const double bytes = passes * elements * 32 * size_of(key.states.dtype);
  const double cycles =
      kWyWarpCycles + elements * kWyElementCycles * (1 + stored_passes(key, tokens));
  const double memory = warps * bytes / copy_rate(target);
  const double latency = is_one_wave ? 0 : fullest / (resident * key.warps) * kWyLatencyUs;
  return kWyStartUs + std::max({memory, latency, us_of(fullest * cycles, target)});
}

}  // namespace cubinery::gdn
