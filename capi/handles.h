// What stands behind the handles of the C ABI.
#pragma once

#include "cubinery/c_api.h"
#include "cubinery/context.h"
#include "cubinery/gdn.h"
#include "cubinery/options.h"

struct CubineryOptions {
  cubinery::Options value;
};

struct CubineryContext {
  cubinery::Context value;
};

struct CubineryDecode {
  cubinery::gdn::Decode value;
  int device;
};

struct CubineryPrefill {
  cubinery::gdn::Prefill value;
  int device;
};
