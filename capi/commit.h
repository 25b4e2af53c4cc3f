// What stands behind CubineryCommit.
#pragma once

#include "capi/operator.h"
#include "cubinery/gdn_commit.h"

struct CubineryCommit : cubinery::capi::OperatorHandle<cubinery::gdn::Commit> {};
