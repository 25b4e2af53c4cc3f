// What stands behind CubineryDecode.
#pragma once

#include "capi/operator.h"
#include "cubinery/gdn_decode.h"

struct CubineryDecode : cubinery::capi::OperatorHandle<cubinery::gdn::Decode> {};
