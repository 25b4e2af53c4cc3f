// What stands behind CubineryVerify.
#pragma once

#include "capi/operator.h"
#include "cubinery/gdn_verify.h"

struct CubineryVerify : cubinery::capi::OperatorHandle<cubinery::gdn::Verify> {};
