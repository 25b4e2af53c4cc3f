// Rows of the decode benchmark: decode as engines run it at every step.
#pragma once

#include "benchmarks/bench.h"
#include "cubinery/gdn.h"
#include "tuner/gdn/gdn_operands.h"

namespace cubinery::bench {

// 16 key heads, 32 value heads, 128 x 128, bf16 operands and logits, states in a pool with i32
// indices, gates from logits, q and k normalised.
gdn::DecodeProblem engine_problem(DType state_dtype, gdn::StateLayout layout);

// Gates as a model is initialised.
GdnOperands decode_operands(const Gpu& gpu, const gdn::DecodeProblem& problem, int batch);

}  // namespace cubinery::bench
