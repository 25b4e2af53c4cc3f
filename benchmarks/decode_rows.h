// Rows of the decode, verify and commit benchmarks: all as engines run them at every step.
#pragma once

#include <string_view>

#include "benchmarks/bench.h"
#include "cubinery/gdn.h"
#include "tuner/gdn/gdn_operands.h"

namespace cubinery::bench {

// 16 key heads, 32 value heads, 128 x 128, bf16 operands and logits, states in a pool with i32
// indices, gates from logits, q and k normalised.
gdn::DecodeProblem engine_problem(DType state_dtype, gdn::StateLayout layout);

// Gates as a model is initialised.
GdnOperands decode_operands(const Gpu& gpu, const gdn::DecodeProblem& problem, int batch);

// The same of requests of so many tokens, the state being f32 or bf16, VK, and kept never ("none"),
// after the last token ("last") or after each ("every").
gdn::VerifyProblem engine_verification(DType state_dtype, std::string_view stored, int tokens);
GdnOperands verify_operands(const Gpu& gpu, const gdn::VerifyProblem& problem, int batch,
                            int tokens);

// The same of a layer whose states are dense.
gdn::CommitProblem engine_commit(DType state_dtype, int tokens);
GdnOperands commit_operands(const Gpu& gpu, const gdn::CommitProblem& problem, int batch,
                            int tokens);

}  // namespace cubinery::bench
