#include "benchmarks/bench.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "harness/random.h"
#include "tuner/measure/clocks.h"
#include "tuner/measure/device_memory.h"

namespace cubinery::bench {
namespace {

// The same for every call.
std::vector<std::byte> random_bytes(std::size_t count) {
  Random random(1);
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
  return bytes;
}

}  // namespace

Arguments::Arguments(int argc, char** argv, const std::vector<std::string>& flags,
                     const std::vector<std::string>& values) {
  const auto in = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (in(flags, name)) {
      given_.emplace_back(name, "");
    } else if (in(values, name) && i + 1 < argc) {
      given_.emplace_back(name, argv[++i]);
    } else {
      std::fprintf(stderr, "%s: unknown argument or no value; accepted:", name.c_str());
      for (const std::string& flag : flags) std::fprintf(stderr, " %s", flag.c_str());
      for (const std::string& value : values) std::fprintf(stderr, " %s VALUE", value.c_str());
      std::fprintf(stderr, "\n");
      std::exit(2);
    }
  }
}

bool Arguments::has(const std::string& name) const {
  return std::any_of(given_.begin(), given_.end(),
                     [&](const auto& pair) { return pair.first == name; });
}

std::string Arguments::get(const std::string& name, const std::string& otherwise) const {
  for (const auto& [given, value] : given_) {
    if (given == name) return value;
  }
  return otherwise;
}

std::vector<std::string> Arguments::all(const std::string& name) const {
  std::vector<std::string> values;
  for (const auto& [given, value] : given_) {
    if (given == name) values.push_back(value);
  }
  return values;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::istringstream text(list);
  for (std::string item; std::getline(text, item, ',');) items.push_back(item);
  return items;
}

Timing time_graph(const Gpu& gpu, int sets, int replays,
                  const std::function<Status(Stream, int)>& launch) {
  return time_launches(gpu.device(), sets, replays, {launch}).value().front();
}

double copy_rate_tb_s(const Gpu& gpu, bool quick) {
  const std::size_t bytes = std::size_t{quick ? 256u : 2048u} << 20;
  const std::shared_ptr<const Device>& device = gpu.device();
  const DeviceMemory from = DeviceMemory::allocate(device, bytes).value();
  const DeviceMemory to = DeviceMemory::allocate(device, bytes).value();
  from.fill(random_bytes(std::size_t{64} << 20)).value();
  const DeviceStream stream = DeviceStream::create(device).value();
  const DeviceEvent start = DeviceEvent::create(device).value();
  const DeviceEvent end = DeviceEvent::create(device).value();
  // NOTE: no graph: its copies take another engine, at two thirds of the rate.
  std::vector<double> samples;
  for (int i = 0; i < 23; ++i) {
    start.record(stream).value();
    gpu.must(gpu.driver().cuMemcpyDtoDAsync(to.address(), from.address(), bytes, stream.get()),
             "cuMemcpyDtoDAsync");
    end.record(stream).value();
    const double ms = end.since(start).value();
    if (i >= 3) samples.push_back(ms);
  }
  return 2 * static_cast<double>(bytes) / (summarise(std::move(samples)).median * 1e9);
}

void describe(const Gpu& gpu, Results* results) {
  results->set("gpu", gpu.name());
  results->set("sm_count", gpu.context().sm_count());
  results->set("driver", driver_version(gpu.driver()));
  const Result<std::string> nvrtc = gpu.context().nvrtc_version();
  results->set("nvrtc", nvrtc ? *nvrtc : "none");
}

std::unique_ptr<const Gpu> open_gpu(const Options& options) {
  Result<std::unique_ptr<const Gpu>> gpu = Gpu::open(options);
  if (gpu) return std::move(*gpu);
  std::printf("skipped: no usable GPU: %s\n", std::string(gpu.error().message()).c_str());
  std::exit(77);
}

}  // namespace cubinery::bench
