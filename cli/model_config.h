// Problems from files: a model's config.json and a manifest.  Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cubinery/status.h"
#include "runtime/registry/operators.h"

namespace cubinery {

// One problem that somebody wants kernels for.
struct Request {
  Problem problem;
  std::string origin;  // "config.json, tp 4"; "problems.json, entry 3"; "command line"
  std::string arch;    // empty: every architecture of --arch
};

// What an engine serves a Qwen3-Next or Qwen3.5 model with: one request per tensor-parallel size
// and operator, in the order of `tp` and operator_names().  `text` is the model's config.json; its
// fields may lie under "text_config"; `file` only names it in messages.
//
// From the file: head counts (divided by the size), head dims, the model's dtype (dtype or
// torch_dtype, bf16 when neither is there) for q, k, v, o, a, b and dt_bias, and the state's dtype
// (mamba_ssm_dtype, f32 when it is not there).  The rest is what vLLM and SGLang do: A_log in f32,
// VK states in a pool with i32 indices where a negative one is skipped, the gate computed from
// A_log, a and dt_bias, beta from its logit, q and k normalised in the kernel.  A prefill takes
// packed sequences with i32 cu_seqlens and keeps no checkpoints.
//
// kInvalidArgument: not JSON (with line and column), a field that is missing or has another type,
// or a size that does not divide the heads.  Whether the problems pass check() is for the caller to
// see.
Result<std::vector<Request>> read_model_config(std::string_view file, std::string_view text,
                                               const std::vector<int>& tp);

// The same in the words of --help, where files are named --hf-config.
extern const char* const kModelAssumptions;

// A JSON array of flat objects: "op" (one of operator_names()), the fields of the problem's
// to_json(), those that are missing at their default, and optionally "arch".  Errors as above; they
// name the entry, from 1.
Result<std::vector<Request>> read_manifest(std::string_view file, std::string_view text);

}  // namespace cubinery
