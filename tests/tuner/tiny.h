// The smallest problem with a group of value heads.
#pragma once

#include "cubinery/gdn_prefill.h"

namespace cubinery::test {

inline gdn::PrefillProblem tiny_prefill() {
  gdn::PrefillProblem problem;
  problem.heads.q = problem.heads.k = 1;
  problem.heads.v = 2;
  problem.key_dim = 16;
  problem.value_dim = 32;
  return problem;
}

}  // namespace cubinery::test
