// Of the library's kernels by name, the bytes of the parameter.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "gdn_commit/key.h"
#include "gdn_conv/key.h"
#include "gdn_decode/key.h"
#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"
#include "gdn_verify/key.h"
#include "gdn_verify_wy/key.h"

namespace cubinery::test {

inline const std::map<std::string, std::size_t>& param_bytes() {
  static const std::map<std::string, std::size_t> kBytes = {
      {"gdn_commit", sizeof(GdnCommitParams)},
      {"gdn_conv", sizeof(GdnConvParams)},
      {"gdn_decode", sizeof(GdnDecodeParams)},
      {"gdn_prefill_chunks", sizeof(GdnPrefillChunksParams)},
      {"gdn_prefill_scan", sizeof(GdnPrefillScanParams)},
      {"gdn_verify", sizeof(GdnVerifyParams)},
      {"gdn_verify_wy", sizeof(GdnVerifyParams)},
  };
  return kBytes;
}

}  // namespace cubinery::test
