// What engines run at every decode step: states in a pool, gates from logits, q and k normalised;
// several sets of operands, so that every launch finds a cold L2.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/operands.h"
#include "cubinery/gdn.h"

namespace cubinery::bench {

// 16 key heads, 32 value heads, 128 x 128, bf16 operands and logits, i32 indices.
gdn::DecodeProblem engine_problem(DType state_dtype, gdn::StateLayout layout);

class DecodeWorkload {
 public:
  DecodeWorkload(const Gpu& gpu, const gdn::DecodeProblem& problem, int batch);

  int sets() const { return static_cast<int>(sets_.size()); }
  gdn::DecodeArgs args(int set) const;
  // Of one launch: the states read and written, and all operands.
  std::size_t bytes() const;

  // Launches once on set 0 and compares a few requests.  Changes the states.
  Errors errors(const gdn::Decode& decode) const;

 private:
  struct Set {
    DeviceBuffer q, k, v, a, b, o, read;
  };
  void make_set(const std::vector<std::int64_t>& slots);
  std::size_t slot_bytes() const;
  void compare(std::int64_t request, const std::vector<std::byte>& before, Errors* errors) const;

  const Gpu& gpu_;
  gdn::DecodeProblem problem_;
  std::int64_t batch_;
  std::int64_t slots_ = 0;
  std::vector<Set> sets_;
  std::vector<std::vector<std::int64_t>> set_slots_;
  DeviceBuffer pool_, a_log_, dt_bias_;
};

}  // namespace cubinery::bench
