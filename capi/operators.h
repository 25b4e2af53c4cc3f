// What stands behind the operators' handles.
#pragma once

#include "capi/operator.h"
#include "cubinery/gdn.h"
#include "cubinery/ranks.h"

#define CUBINERY_HANDLE(Name, ...) \
  struct Cubinery##Name : cubinery::capi::OperatorHandle<cubinery::gdn::Name> {};
CUBINERY_OPERATORS(CUBINERY_HANDLE)
#undef CUBINERY_HANDLE

struct CubineryRankPrefill : cubinery::capi::OperatorHandle<cubinery::gdn::RankPrefill> {};
