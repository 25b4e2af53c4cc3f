// What stands behind CubineryPrefill.
#pragma once

#include "capi/operator.h"
#include "cubinery/gdn_prefill.h"

struct CubineryPrefill : cubinery::capi::OperatorHandle<cubinery::gdn::Prefill> {};
