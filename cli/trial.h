// One decode step on a GPU, with numbers that are known beforehand.
#pragma once

#include "cubinery/options.h"
#include "cubinery/status.h"

namespace cubinery {

// Compiles gdn_decode for options.device, runs it on a tiny problem and compares output and state.
// kDriver: CUDA refused, or the numbers are wrong.  Other errors: those of Context::prepare().
Status trial_launch(const Options& options);

}  // namespace cubinery
