// What stands behind CubineryConv.
#pragma once

#include "capi/operator.h"
#include "cubinery/gdn_conv.h"

struct CubineryConv : cubinery::capi::OperatorHandle<cubinery::gdn::Conv> {};
