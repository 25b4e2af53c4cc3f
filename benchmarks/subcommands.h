// What cubinery_bench does beside timing operators.  argv[0] is the subcommand's name.
#pragma once

namespace cubinery::bench {

// What the library costs the host: launches next to bare cuLaunchKernel, preparing an operator, and
// the time from the start of a process to its first result.
int run_host(int argc, char** argv);

// The time from the start of a process to its first prefill, with the result on the host, and where
// it went, as one JSON object; first_request.py runs it next to others.
//
// --cache FOLDER: the kernel cache, empty or filled by an earlier run.  --started: when the process
// was started, in nanoseconds of CLOCK_MONOTONIC.  Without it the program starts itself anew.
int run_first_prefill(int argc, char** argv);

}  // namespace cubinery::bench
