// What the Python module asks of the C functions inside it, beyond cubinery/c_api.h.
#pragma once

#include <cstdint>

#include "cubinery/c_api.h"
#include "cubinery/kernel.h"
#include "cubinery/kernel_source.h"
#include "cubinery/tuning.h"

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

// The same of anything that can be tuned.
int tune_tunable(const char* directory, const CubineryContext* context, Tunable& tunable,
                 const char* shapes, const char* settings, CubineryTuneProgress progress,
                 void* user, char** summary);

// The space of a text, of {"choices": [[name, [value, ...]], ...], "valid": [true, ...]}: "valid"
// has each combination in the order of tuning_space().
int source_space(const CubineryKernelSource* source, const char* choices, TuningSpace* space);

// choose() in a space, of a list of one shape: "index", "configuration", "rung", "why".
int choose_in(const CubineryContext* context, const TuningSpace& space, const char* shapes,
              char** choice);

// Bytes of the L2 cache; 0: the context has no device.
std::int64_t l2_bytes(const CubineryContext* context);

// Waits for everything on the context's device.
Status synchronize(const CubineryContext* context);

// What the C struct says.
Status read_source(const CubineryKernelSource* source, KernelSource* read);

}  // namespace cubinery::capi
