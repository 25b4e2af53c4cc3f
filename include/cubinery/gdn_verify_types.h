// The choices that only gdn::Verify leaves to its caller.  Compiled by the host and by NVRTC: no
// includes.  Persistent: names are part of kernel identities.
#pragma once

namespace cubinery::gdn {

// Which new states a verification keeps.
enum class StoredStates : int {
  kLast,   // the state after a request's last token
  kEvery,  // the states after each of its tokens: intermediate states
};

}  // namespace cubinery::gdn
