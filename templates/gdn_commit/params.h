// The arguments of gdn_commit.  Compiled by the host and by NVRTC.
#pragma once

#include "common/params.h"

namespace cubinery {

// The tensors of one layer, and what they have room for.  An array of these on the device, one for
// each layer, lives as long as the tensors do; no file has it.
struct GdnCommitLayer {
  long long requests;
  long long tokens;  // dense: of each request; packed: of all
  InputRows<TokenStrides> k, v;
  GateParams<TokenStrides> gates;
  ReadStates read;
  WrittenStates written;
};

struct GdnCommitParams {
  int requests;
  int layers;
  int heads;
  int max_tokens;               // of a request
  const GdnCommitLayer* table;  // nullptr: the one layer is `layer`
  StridedVector accepted;       // nullptr: all tokens are
  StridedVector cu_seqlens;
  StridedVector read_indices;  // pool: the slot of each request, in every layer
  StridedVector write_indices;
  long long scratch_slot;
  GdnCommitLayer layer;
};

}  // namespace cubinery
