// What a Prefill operator shares.
#pragma once

#include <cstdint>
#include <vector>

#include "cubinery/gdn_prefill.h"
#include "runtime/prefill_args.h"
#include "runtime/prefill_problem.h"

namespace cubinery::gdn {

struct Prefill::State {
  struct Scan {
    GdnPrefillScanKey key;
    Kernel kernel;
    std::int64_t blocks(std::int64_t sequences, int heads) const {
      return sequences * heads * (key.value_dim / (16 * key.warps));
    }
  };
  PrefillProblem problem;
  GdnPrefillChunksKey chunks_key;
  Kernel chunks;
  std::vector<Scan> scans;  // as PrefillKeys::scans
  int shared_heads = 1;     // the most heads that may share a block of `chunks`
  int sm_count = 0;
  bool programmatic = false;  // the device has programmatic launches

  // The widest scan that fills the machine, or the narrowest.
  const Scan& scan(std::int64_t sequences) const;
  // Of `chunks`.
  int heads_per_block(std::int64_t slots) const;
  std::int64_t slots(const PrefillExtent& extent) const;
};

// Prefill::create() with keys of the caller's choice, for measurements of candidates.
// Requires: problem.check() is OK, the keys differ from prefill_keys(problem, ...) in tuned fields
// only, they have one chunk_size, and there is a scan.
Result<Prefill> create_prefill(const Context& context, const PrefillProblem& problem,
                               const PrefillKeys& keys);

}  // namespace cubinery::gdn
