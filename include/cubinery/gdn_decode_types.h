// The choices that gdn::Decode and gdn::Verify leave to their callers.  Compiled by the host and by
// NVRTC: no includes.  Persistent: names are part of kernel identities.
#pragma once

namespace cubinery::gdn {

// What becomes of o before it is stored.
enum class OutputNorm : int {
  kNone,      // nothing
  kGatedRms,  // o / sqrt(mean(o^2) + norm_eps) * norm_weight * silu(z): Qwen3-Next's next step
  kSigmoidGatedRms,  // the same times sigmoid(z) in place of silu(z): Kimi Linear's next step
};

}  // namespace cubinery::gdn
