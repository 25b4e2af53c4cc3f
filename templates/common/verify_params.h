// The arguments of the kernels of verification.  Compiled by the host and by NVRTC.
#pragma once

#include "common/output_norm.h"
#include "common/params.h"
#include "cubinery/gdn_verify_types.h"

namespace cubinery {

// Whether there is a state for each step.  Of a kernel's key, or of an operator's problem.
template <class Key>
constexpr bool stores_every(const Key& key) {
  return key.states.store && key.stored_states == gdn::StoredStates::kEvery;
}

// A warp looks at the indices of all its steps at once, a lane for each.
inline constexpr int kMaxVerifyTokens = 16;

// Where the states of one request's steps lie.  From one step to the next, in elements; 0 where all
// steps have one place.
struct StateSteps {
  long long read_state;  // of dense states
  long long written_state;
  long long read_index;  // of the indices of slots
  long long written_index;
  int readable;  // how many steps there are to start from
};

struct GdnVerifyParams {
  int requests;
  int heads;
  int draft_tokens;  // of a request
  long long tokens;  // dense: of each request; packed: of all
  StateParams states;
  StateSteps steps;
  StridedVector accepted;
  StridedVector cu_seqlens;
  InputRows<TokenStrides> q, k, v;
  GateParams<TokenStrides> gates;
  OutputRows<TokenStrides> o;
  float scale;
  float lower_bound;
  Scalars<TokenStrides> parents;  // of a tree's tokens; without heads
  NormParams<TokenStrides> norm;
};

}  // namespace cubinery
