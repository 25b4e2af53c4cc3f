// The harness of every operator.
#pragma once

#include "harness/conv.h"
#include "harness/decode.h"
#include "harness/prefill.h"
#include "harness/verify.h"
