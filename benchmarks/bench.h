// Timing on the device, and the command line that all subcommands share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/results.h"
#include "cubinery/status.h"
#include "tests/gpu/device.h"
#include "tuner/measure/timer.h"

namespace cubinery::bench {

using test::DeviceBuffer;
using test::Gpu;

std::vector<std::string> split(const std::string& list);  // "a,b,c"

// --name and --name value; anything else is an error.
class Arguments {
 public:
  // Prints what is accepted and exits with 2 when an argument is not in `flags` (no value) or
  // `values`.
  Arguments(int argc, char** argv, const std::vector<std::string>& flags,
            const std::vector<std::string>& values);
  bool has(const std::string& name) const;
  std::string get(const std::string& name, const std::string& otherwise = "") const;
  std::vector<std::string> all(const std::string& name) const;  // where it may be repeated

 private:
  std::vector<std::pair<std::string, std::string>> given_;
};

// Milliseconds of launch(stream, set), as the tuner times it (tuner/measure/timer.h).  Throws
// Error when a launch fails.
Timing time_graph(const Gpu& gpu, int sets, int replays,
                  const std::function<Status(Stream, int)>& launch);

// Bytes read plus written per second, in TB/s, of cuMemcpyDtoDAsync between two buffers of 2 GiB
// (`quick`: 256 MiB).
double copy_rate_tb_s(const Gpu& gpu, bool quick);

// "gpu", "sm_count", "driver" and "nvrtc" of the record.
void describe(const Gpu& gpu, Results* results);

// Opens the device or prints why not and exits with 77.
std::unique_ptr<const Gpu> open_gpu(const Options& options);

}  // namespace cubinery::bench
