// Whether a prefill computes what it should: part of a launch against the double reference.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/operands.h"
#include "tuner/gdn/gdn_operands.h"

namespace cubinery::bench {

// Two heads of the shortest and of the longest sequence, their first 4096 tokens; their final state
// where that is the whole sequence.
class PrefillCheck {
 public:
  // Computes what is expected of set 0, on all processors.  Both must outlive this.  Requires: a
  // problem of prefill_problem().
  PrefillCheck(const Gpu& gpu, const GdnOperands& operands);

  // Launches on set 0 and compares.
  Errors errors(const gdn::Prefill& prefill) const;

 private:
  struct Part {
    std::int64_t sequence = 0;
    std::int64_t first = 0;  // token of the launch
    std::int64_t tokens = 0;
    bool whole = false;
    int head = 0;
    std::vector<double> o{};      // [tokens][128]
    std::vector<double> state{};  // [128][128]
  };
  void choose_parts();
  void compute(Part* part) const;
  void compare(const Part& part, Errors* errors) const;

  const Gpu& gpu_;
  const GdnOperands& operands_;
  std::vector<Part> parts_;
};

}  // namespace cubinery::bench
