// What stands behind the handles of the C ABI, less those of operators (operator.h).
#pragma once

#include "cubinery/c_api.h"
#include "cubinery/context.h"
#include "cubinery/options.h"

struct CubineryOptions {
  cubinery::Options value;
};

struct CubineryContext {
  cubinery::Context value;
};
