// What the Python module asks of the C functions inside it, beyond cubinery/c_api.h.
#pragma once

#include "cubinery/c_api.h"
#include "cubinery/kernel.h"

namespace cubinery::capi {

// From now on JSON has a byte of a path that is no UTF-8 as "\\udc80" to "\\udcff": Python's
// surrogateescape.  Other languages' strings cannot hold that: for them it is replaced.
void keep_bytes_in_json();

// What stands behind a kernel's handle.
const Kernel& value_of(const CubineryKernel* kernel);

// cubinery_tune(), into a directory that JSON cannot name; NULL: that of the settings.
int tune_in(const char* directory, const CubineryContext* context, const char* op,
            const char* problem, const char* shapes, const char* settings,
            CubineryTuneProgress progress, void* user, char** summary);

}  // namespace cubinery::capi
