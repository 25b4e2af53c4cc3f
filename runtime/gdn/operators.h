// The list of operators: C, Python, the registry and the harness go through it.
#pragma once

#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "runtime/gdn/verify/operator.h"

// X(Name, name, sizes, more), in the order in which the command line goes through them:
// gdn::NameProblem and others are classes, cubinery_name_launch() and others functions of C.
// sizes: how many numbers a choice takes.  more: what launches take besides, Nothing or Workspace.
#define CUBINERY_OPERATORS(X)       \
  X(Decode, decode, 1, Nothing)     \
  X(Prefill, prefill, 3, Workspace) \
  X(Verify, verify, 2, Nothing)     \
  X(Commit, commit, 2, Nothing)     \
  X(Conv, conv, 3, Nothing)
