// Decode steps on a GPU, and whether the numbers are right.
#pragma once

#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

// Compiles gdn_decode for options.device, runs it on small batches of every distribution that the
// tuner checks with (harness/check.h) and compares with the reference.
// kDriver: CUDA refused, or the numbers are wrong.  Other errors: those of Context::prepare().
Status trial_launch(const Options& options);

}  // namespace cubinery
