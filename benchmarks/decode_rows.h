// Rows of the decode, verify and commit benchmarks: all as engines run them at every step.
#pragma once

#include <string_view>

#include "benchmarks/bench.h"
#include "cubinery/gdn.h"
#include "harness/gdn_operands.h"

namespace cubinery::bench {

// 16 key heads, 32 value heads, 128 x 128, bf16 operands and logits, states in a pool with i32
// indices, gates from logits, q and k normalised.
gdn::DecodeProblem engine_problem(DType state_dtype, gdn::StateLayout layout);

// Of so many requests of so many tokens; gates as a model is initialised.  `same`: as_prefill() of
// the operator's problem.
GdnOperands request_operands(const Gpu& gpu, const GdnProblem& same, int batch, int tokens = 1);

// What a row of these operators has: the configuration and where it is from, times, and the share
// of the copy rate that moving `bytes` at least once is.
nlohmann::ordered_json timed_members(const Chosen& chosen, const Timing& ms, double bytes,
                                     double copy_tb_s);

// The same of requests of so many tokens, the state being f32 or bf16, VK, and kept never ("none"),
// after the last token ("last") or after each ("every").
gdn::VerifyProblem engine_verification(DType state_dtype, std::string_view stored, int tokens);

// The same of a layer whose states are dense.
gdn::CommitProblem engine_commit(DType state_dtype, int tokens);

}  // namespace cubinery::bench
