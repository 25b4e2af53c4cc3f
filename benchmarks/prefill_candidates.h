// Every candidate of the tuned fields of the prefill kernels, on one row.
#pragma once

#include "benchmarks/bench.h"
#include "benchmarks/prefill_workload.h"

namespace cubinery::bench {

// Prints a table, the fastest first: the whole operator, then each kernel by itself.
void print_prefill_candidates(const Gpu& gpu, const PrefillRow& row, int replays);

}  // namespace cubinery::bench
