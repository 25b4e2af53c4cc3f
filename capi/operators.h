// What stands behind the operators' handles.
#pragma once

#include "capi/operator.h"
#include "cubinery/gdn.h"

struct CubineryDecode : cubinery::capi::OperatorHandle<cubinery::gdn::Decode> {};
struct CubineryPrefill : cubinery::capi::OperatorHandle<cubinery::gdn::Prefill> {};
struct CubineryVerify : cubinery::capi::OperatorHandle<cubinery::gdn::Verify> {};
struct CubineryCommit : cubinery::capi::OperatorHandle<cubinery::gdn::Commit> {};
struct CubineryConv : cubinery::capi::OperatorHandle<cubinery::gdn::Conv> {};
