// Timing on the device, and the command line that all benchmarks share.
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

namespace cubinery::bench {

using test::DeviceBuffer;
using test::Gpu;

// --name and --name value; anything else is an error.
class Arguments {
 public:
  // Prints what is accepted and exits with 2 when an argument is not in `flags` (no value) or
  // `values`.
  Arguments(int argc, char** argv, const std::vector<std::string>& flags,
            const std::vector<std::string>& values);
  bool has(const std::string& name) const;
  std::string get(const std::string& name, const std::string& otherwise = "") const;
  // "1,8,32".
  std::vector<int> get_list(const std::string& name, const std::vector<int>& otherwise) const;

 private:
  std::vector<std::pair<std::string, std::string>> given_;
};

// Milliseconds of one launch.
struct Timing {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};

// Of any samples.  Requires: !samples.empty().
Timing summarise(std::vector<double> samples);

// Sets of operands that launches rotate over, so that each finds a cold L2: more than four times 60
// MB in all, and at least three.
int rotation(std::size_t bytes_per_set);

// Times launch(stream, set): a CUDA graph holds several launches, going round the sets at least
// once, so that neither host time nor the graph's own start shows; `replays` replays, each timed by
// events. Throws std::runtime_error when a launch fails.
Timing time_graph(const Gpu& gpu, int sets, int replays,
                  const std::function<Status(Stream, int)>& launch);

// The same for every call.
std::vector<std::byte> random_bytes(std::size_t count);

// Bytes read plus written per second, in TB/s, of cuMemcpyDtoDAsync between two buffers of 2 GiB
// (`quick`: 256 MiB).
double copy_rate_tb_s(const Gpu& gpu, bool quick);

// Fills `buffer` with copies of `pattern`.
void fill(const Gpu& gpu, const DeviceBuffer& buffer, const std::vector<std::byte>& pattern);

// "gpu", "sm_count", "driver" and "nvrtc" of the record.
void describe(const Gpu& gpu, Results* results);

// The body of a benchmark's main(): calls `run`, or prints what it threw and returns 1.
int run_main(int (*run)(int argc, char** argv), int argc, char** argv);

// Opens the device or prints why not and exits with 77.
std::unique_ptr<const Gpu> open_gpu(const Options& options);

}  // namespace cubinery::bench
