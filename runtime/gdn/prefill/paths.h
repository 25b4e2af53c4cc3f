// The paths of prefill.
#pragma once

#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery {
namespace gdn {

// Chunk WY factors, then a scan (scan_path.h): every sequence in one piece, with mma.sync on every
// architecture, with wgmma on sm_90a, or with wgmma and WY factors that the scan makes itself.
using PrefillKeyPath =
    KeyedPath<PrefillProblem, PrefillRunner, GdnPrefillChunksKey, GdnPrefillScanKey>;
const PrefillKeyPath& prefill_portable();
const PrefillKeyPath& prefill_hopper();
const PrefillKeyPath& prefill_hopper_fused();
// Long sequences cut into segments (common/chunk/segments.h).
const PrefillPath& prefill_segments();
const PrefillPath& prefill_hopper_segments();
const PrefillPath& prefill_hopper_fused_segments();

}  // namespace gdn

// Beside the path.
extern template class KeyedPath<gdn::PrefillProblem, gdn::PrefillRunner, GdnPrefillChunksKey,
                                GdnPrefillScanKey>;

}  // namespace cubinery
