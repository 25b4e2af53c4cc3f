#include "benchmarks/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/random.h"

namespace cubinery::bench {
namespace {

constexpr std::size_t kL2Bytes = 60'000'000;  // of the largest device we measure on
constexpr double kGraphMs = 2;                // long enough to hide the start of a graph
constexpr int kMaxLaunches = 1024;            // per graph

class Event {
 public:
  explicit Event(const Gpu& gpu) : gpu_(gpu) {
    gpu.must(gpu.driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "cuEventCreate");
  }
  ~Event() { gpu_.driver().cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(const test::TestStream& stream) const {
    gpu_.must(gpu_.driver().cuEventRecord(event_, stream.get()), "cuEventRecord");
  }
  // Milliseconds since `start`; waits for this event.
  double since(const Event& start) const {
    float ms = 0;
    gpu_.must(gpu_.driver().cuEventSynchronize(event_), "cuEventSynchronize");
    gpu_.must(gpu_.driver().cuEventElapsedTime(&ms, start.event_, event_), "cuEventElapsedTime");
    return ms;
  }

 private:
  const Gpu& gpu_;
  CUevent event_ = nullptr;
};

double time_once(const Gpu& gpu, const test::TestStream& stream,
                 const std::function<void()>& work) {
  const Event start(gpu), end(gpu);
  start.record(stream);
  work();
  end.record(stream);
  return end.since(start);
}

// "580.159.04", of the kernel module.
std::string driver_version(const Gpu& gpu) {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  if (file >> version) return version;
  // "NVRM version: NVIDIA UNIX ... Module  580.159.04  ...": the first word with two dots.
  std::ifstream proc("/proc/driver/nvidia/version");
  while (proc >> version) {
    if (version.find_first_not_of("0123456789.") == version.npos &&
        std::count(version.begin(), version.end(), '.') > 0) {
      return version;
    }
  }
  return "CUDA " + std::to_string(gpu.driver().version());
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

std::vector<int> Arguments::get_list(const std::string& name,
                                     const std::vector<int>& otherwise) const {
  if (!has(name)) return otherwise;
  std::vector<int> list;
  std::istringstream text(get(name));
  for (std::string item; std::getline(text, item, ',');) list.push_back(std::atoi(item.c_str()));
  return list;
}

Timing summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    const double index = share * static_cast<double>(samples.size() - 1);
    return samples[static_cast<std::size_t>(std::lround(index))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

int rotation(std::size_t bytes_per_set) {
  return static_cast<int>(
      std::max<std::size_t>(3, 4 * kL2Bytes / std::max<std::size_t>(1, bytes_per_set) + 1));
}

Timing time_graph(const Gpu& gpu, int sets, int replays,
                  const std::function<Status(Stream, int)>& launch) {
  const test::TestStream stream(gpu);
  const auto round = [&] {
    for (int set = 0; set < sets; ++set) CUBINERY_RETURN_IF_ERROR(launch(stream.get(), set));
    return Status();
  };
  const test::Graph one_round(gpu, stream, round);
  one_round.launch();  // warm-up
  const double round_ms = time_once(gpu, stream, [&] { one_round.launch(); });
  const int wanted = static_cast<int>(std::ceil(kGraphMs / std::max(round_ms, 1e-3)));
  const int rounds = std::clamp(wanted, 1, std::max(1, kMaxLaunches / sets));
  const test::Graph graph(gpu, stream, [&] {
    for (int i = 0; i < rounds; ++i) CUBINERY_RETURN_IF_ERROR(round());
    return Status();
  });
  graph.launch();
  graph.launch();
  std::vector<double> samples;
  for (int i = 0; i < replays; ++i) {
    const double ms = time_once(gpu, stream, [&] { graph.launch(); });
    samples.push_back(ms / (rounds * sets));
  }
  return summarise(std::move(samples));
}

std::vector<std::byte> random_bytes(std::size_t count) {
  test::Random random(1);
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
  return bytes;
}

double copy_rate_tb_s(const Gpu& gpu, bool quick) {
  const std::size_t bytes = std::size_t{quick ? 256u : 2048u} << 20;
  const DeviceBuffer from(gpu, bytes), to(gpu, bytes);
  fill(gpu, from, random_bytes(std::size_t{64} << 20));
  const test::TestStream stream(gpu);
  const auto copy = [&] {
    gpu.must(gpu.driver().cuMemcpyDtoDAsync(to.address(), from.address(), bytes, stream.get()),
             "cuMemcpyDtoDAsync");
  };
  for (int i = 0; i < 3; ++i) copy();
  std::vector<double> samples;
  for (int i = 0; i < 20; ++i) samples.push_back(time_once(gpu, stream, copy));
  return 2 * static_cast<double>(bytes) / (summarise(std::move(samples)).median * 1e9);
}

void fill(const Gpu& gpu, const DeviceBuffer& buffer, const std::vector<std::byte>& pattern) {
  const test::TestStream stream(gpu);
  const std::size_t first = std::min(pattern.size(), buffer.bytes());
  buffer.upload(std::span(pattern).first(first));
  for (std::size_t done = first; done < buffer.bytes();) {
    const std::size_t count = std::min(done, buffer.bytes() - done);
    gpu.must(gpu.driver().cuMemcpyDtoDAsync(buffer.address() + done, buffer.address(), count,
                                            stream.get()),
             "cuMemcpyDtoDAsync");
    done += count;
  }
  stream.synchronize();
}

void describe(const Gpu& gpu, Results* results) {
  results->set("gpu", gpu.name());
  results->set("sm_count", gpu.context().sm_count());
  results->set("driver", driver_version(gpu));
  const Result<std::string> nvrtc = gpu.context().nvrtc_version();
  results->set("nvrtc", nvrtc ? *nvrtc : "none");
}

std::unique_ptr<const Gpu> open_gpu(const Options& options) {
  Result<std::unique_ptr<const Gpu>> gpu = Gpu::open(options);
  if (gpu) return std::move(*gpu);
  std::printf("skipped: no usable GPU: %s\n", std::string(gpu.error().message()).c_str());
  std::exit(77);
}

int run_main(int (*run)(int argc, char** argv), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace cubinery::bench
