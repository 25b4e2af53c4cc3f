// The cost model of the convolution: the choice where nothing was measured.  A pure function.
#pragma once

#include "gdn_conv/key.h"
#include "results/target.h"
#include "runtime/gdn/conv/rows.h"

namespace cubinery::gdn {

// Microseconds of one launch.
double conv_us(const GdnConvKey& key, const ConvLoad& load, const Target& target);

}  // namespace cubinery::gdn
