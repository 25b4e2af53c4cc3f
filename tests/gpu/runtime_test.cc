// Contexts and kernels on a device: where a kernel comes from, and what a context without a
// compiler or with another architecture does.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "codegen/arch.h"
#include "runtime/jit/kernel_state.h"
#include "runtime/jit/tensor_map.h"
#include "tests/cache/temp_dir.h"
#include "tests/gpu/cases.h"

namespace cubinery::test {
namespace {

using gdn::DecodeProblem;

// The device, NVRTC and driver of the tests with a cache of its own.
Options options_with(const std::string& cache_dir) {
  Options options = gpu().options();
  options.cache_dir = cache_dir;
  options.cache_layers.clear();
  options.offline = false;
  return options;
}

Context create(const Options& options) {
  Result<Context> context = Context::create(options);
  INFO((context ? "" : context.error().message()));
  REQUIRE(context.has_value());
  return *context;
}

KernelSpec a_kernel() {
  Result<std::vector<KernelSpec>> kernels = small_problem().kernels(gpu().context().arch());
  REQUIRE(kernels.has_value());
  return kernels->front();
}

Kernel get(const Context& context, const KernelSpec& spec) {
  Result<Kernel> kernel = context.get(spec);
  if (!kernel) FAIL(kernel.error().message() << "\n" << kernel.error().log());
  return *kernel;
}

TEST_CASE("Runtime.TheSecondGetComesFromMemory", "[gpu]") {
  const TempDir dir;
  const Context context = create(options_with(dir.path()));
  const Kernel first = get(context, a_kernel());
  CHECK(context.stats().misses == 1);
  CHECK(context.stats().compiles == 1);
  const Kernel second = get(context, a_kernel());
  CHECK(context.stats().memory_hits == 1);
  CHECK(context.stats().compiles == 1);
  CHECK(first.cuda_function() == second.cuda_function());
  CHECK(first.info().canonical == a_kernel().canonical);
  CHECK(first.info().arch == context.arch());
  CHECK(first.info().registers > 0);
}

// In the global mode, where CUDA forbids every thread to load, unload, allocate or make contexts.
TEST_CASE("Runtime.OperatorsComeAndGoWhileAGraphIsCaptured", "[gpu]") {
  const TempDir dir;
  const Options options = options_with(dir.path());
  const DecodeCase one(small_problem(), 3);
  const gdn::Decode decode = prepare(one.problem());
  DecodeProblem other = small_problem();
  other.states.layout = gdn::StateLayout::kKV;
  std::optional<Result<gdn::Decode>> freed_here = create(options).prepare(other);
  std::optional<Result<gdn::Decode>> freed_there = create(options).prepare(small_problem());
  REQUIRE((*freed_here && *freed_there));

  const DeviceStream stream = make_stream(gpu());
  const Device& device = stream.device();
  const Driver& driver = device.driver();
  const CurrentContext current(driver, device.context());
  REQUIRE(driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  const bool before = decode.launch(stream.get(), one.args()).ok();
  freed_here.reset();
  const bool made_here = create(options).prepare(other).has_value();
  bool made_there = false;
  std::thread([&] {
    freed_there.reset();
    made_there = Context::create(options).value().prepare(small_problem()).has_value();
  }).join();
  const bool after = decode.launch(stream.get(), one.args()).ok();
  CUgraph graph = nullptr;
  CHECK(driver.cuStreamEndCapture(stream.get(), &graph) == CUDA_SUCCESS);
  CHECK((before && made_here && made_there && after));
  std::size_t nodes = 0;
  REQUIRE(graph != nullptr);
  CHECK(driver.cuGraphGetNodes(graph, nullptr, &nodes) == CUDA_SUCCESS);
  CHECK(nodes == 2);
  driver.cuGraphDestroy(graph);
}

TEST_CASE("Runtime.AnotherContextFindsTheKernelOnDisk", "[gpu]") {
  const TempDir dir;
  get(create(options_with(dir.path())), a_kernel());
  const Context context = create(options_with(dir.path()));
  get(context, a_kernel());
  CHECK(context.stats().disk_hits == 1);
  CHECK(context.stats().compiles == 0);
}

TEST_CASE("Runtime.ACacheLayerIsSearchedToo", "[gpu]") {
  const TempDir layer, dir;
  get(create(options_with(layer.path())), a_kernel());
  Options options = options_with(dir.path());
  options.cache_layers = {layer.path()};
  const Context context = create(options);
  get(context, a_kernel());
  CHECK(context.stats().disk_hits == 1);
  CHECK(context.stats().compiles == 0);
}

TEST_CASE("Runtime.OfflineTakesWhatIsCachedAndNothingElse", "[gpu]") {
  const TempDir filled, empty;
  get(create(options_with(filled.path())), a_kernel());
  Options options = options_with(filled.path());
  options.offline = true;
  const Context context = create(options);
  get(context, a_kernel());
  CHECK(context.stats().disk_hits == 1);
  options.cache_dir = empty.path();
  const Result<Kernel> missing = create(options).get(a_kernel());
  REQUIRE(!missing);
  CHECK(missing.error().code() == Code::kNotCached);
}

TEST_CASE("Runtime.WithoutNvrtcAFilledCacheIsEnough", "[gpu]") {
  const TempDir filled, empty;
  get(create(options_with(filled.path())), a_kernel());
  Options options = options_with(filled.path());
  options.nvrtc_path = "/nonexistent/libnvrtc.so";
  const Context context = create(options);
  get(context, a_kernel());
  CHECK(context.stats().disk_hits == 1);
  options.cache_dir = empty.path();
  const Result<Kernel> missing = create(options).get(a_kernel());
  REQUIRE(!missing);
  CHECK(missing.error().code() == Code::kUnsupported);
  CHECK(missing.error().message().find("/nonexistent/libnvrtc.so") != std::string_view::npos);
}

TEST_CASE("Runtime.ADamagedEntryIsCompiledAgain", "[gpu]") {
  const TempDir dir;
  Result<CompiledKernel> compiled = create(options_with(dir.path())).compile(a_kernel());
  REQUIRE(compiled.has_value());
  CHECK(compiled->source == Source::kCompiled);
  REQUIRE(std::filesystem::exists(compiled->path));
  std::filesystem::resize_file(compiled->path, std::filesystem::file_size(compiled->path) / 2);
  const Context context = create(options_with(dir.path()));
  get(context, a_kernel());
  CHECK(context.stats().damaged >= 1);  // once before and once behind the compile lock
  CHECK(context.stats().compiles == 1);
  const Context repaired = create(options_with(dir.path()));
  get(repaired, a_kernel());
  CHECK(repaired.stats().disk_hits == 1);
}

TEST_CASE("Runtime.WithoutDiskCacheNothingIsWritten", "[gpu]") {
  const TempDir dir;
  Options options = options_with(dir.path());
  options.use_disk_cache = false;
  const Context context = create(options);
  get(context, a_kernel());
  CHECK(context.stats().compiles == 1);
  CHECK(count_files(dir.path()) == 0);
}

TEST_CASE("Runtime.ConcurrentCallersShareOneCompile", "[gpu]") {
  const TempDir dir;
  const Context context = create(options_with(dir.path()));
  const KernelSpec spec = a_kernel();
  std::vector<int> failures(8);
  {
    std::vector<std::jthread> threads;
    threads.reserve(failures.size());
    for (int& failed : failures) {
      threads.emplace_back([&] { failed = context.get(spec).has_value() ? 0 : 1; });
    }
  }
  CHECK(failures == std::vector<int>(8));
  CHECK(context.stats().compiles == 1);
}

TEST_CASE("Runtime.AnArchThatTheDeviceCannotRunIsUnsupported", "[gpu]") {
  const TempDir dir;
  const std::string& native = gpu().context().arch();  // "sm_90a"
  const std::string digits = native.substr(0, native.find_first_not_of("0123456789", 3));
  const std::string major = digits.substr(0, digits.size() - 1);
  int tried = 0;
  for (const std::string& arch : known_architectures()) {
    if (arch.compare(0, major.size(), major) == 0) continue;
    Options options = options_with(dir.path());
    options.arch = arch;
    const Result<Context> context = Context::create(options);
    INFO("arch " << arch << " on " << native);
    REQUIRE(!context);
    CHECK(context.error().code() == Code::kUnsupported);
    CHECK(context.error().message().find(arch) != std::string_view::npos);
    ++tried;
  }
  CHECK(tried > 0);
}

TEST_CASE("Runtime.ADeviceThatIsNotThereIsAnInvalidArgument", "[gpu]") {
  const TempDir dir;
  Options options = options_with(dir.path());
  options.device = 4096;
  const Result<Context> context = Context::create(options);
  REQUIRE(!context);
  CHECK(context.error().code() == Code::kInvalidArgument);
}

TEST_CASE("Runtime.KernelsCheckTheirParameters", "[gpu]") {
  const Kernel kernel = get(gpu().context(), a_kernel());
  const Status status = kernel.launch(nullptr, {}, int{0});
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message().find("params") != std::string_view::npos);
}

// The last copy of a kernel keeps what it needs, whatever becomes of its context.
TEST_CASE("Runtime.OperatorsOutliveTheirContext", "[gpu]") {
  const TempDir dir;
  std::optional<Context> context = create(options_with(dir.path()));
  Result<gdn::Decode> decode = context->prepare(small_problem());
  REQUIRE(decode.has_value());
  context.reset();
  const DecodeCase c(small_problem(), 3, {.seed = seed()});
  CHECK(c.check(run(c, *decode)).ok());
}

// Each block of a cluster writes its rank, read from the other end of its dynamic shared memory.
constexpr const char* kClusterKernel = R"(
struct ClusterParams {
  int* ranks;
};
extern "C" __global__ void __launch_bounds__(32, 1) cluster(const ClusterParams p) {
  extern __shared__ int memory[];
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  memory[CUBINERY_KEY - 1] = rank;
  p.ranks[blockIdx.x] = memory[CUBINERY_KEY - 1];
}
)";

TEST_CASE("Runtime.ClustersAndSharedMemoryBeyondThePlainLimit", "[gpu][sanitize]") {
  const std::optional<Arch> arch = parse_arch(gpu().context().arch());
  REQUIRE(arch);
  if (!has_clusters(arch->major)) return skip_test("no clusters before sm_90");
  const TempDir dir;
  std::filesystem::create_directories(dir.path() + "/templates/cluster");
  std::ofstream(dir.path() + "/templates/cluster/cluster.cu") << kClusterKernel;
  Options options = options_with(dir.path() + "/cache");
  options.template_dirs = {dir.path() + "/templates"};
  constexpr unsigned kInts = 50000;  // 200 kB of the 227 kB that a block may ask for
  const KernelSpec spec{.kernel = "cluster",
                        .canonical = "cluster;ints=50000",
                        .initializer = std::to_string(kInts),
                        .threads = 32,
                        .shared_bytes = kInts * sizeof(int),
                        .param_bytes = sizeof(void*)};
  const Kernel kernel = get(create(options), spec);
  const DeviceBuffer ranks(gpu(), 8 * sizeof(int));
  struct Params {
    void* ranks;
  };
  CHECK(kernel.launch(nullptr, {.grid = {8}, .cluster = {4}}, Params{ranks.data()}).ok());
  std::vector<int> expected;
  expected.reserve(8);
  for (int block = 0; block < 8; ++block) expected.push_back(block % 4);
  std::vector<int> found(8);
  std::memcpy(found.data(), ranks.download().data(), ranks.bytes());
  CHECK(found == expected);
}

// The driver makes maps only where a context is current.
TEST_CASE("Runtime.TensorMapsAreMadeOnAnyThread", "[gpu]") {
  if (parse_arch(gpu().context().arch())->major < 9) {
    skip_test("no copy engine on this device");
    return;
  }
  const Kernel kernel = get(gpu().context(), a_kernel());
  const DeviceBuffer rows(gpu(), 64 * 128 * 2);
  bool made = false;
  std::thread([&] {
    TensorMap map{};
    made = make_tensor_map(with_context_of(kernel),
                           {.data = rows.data(),
                            .extents = {128, 1, 64, 1},
                            .strides = {1, 128, 128, 0},
                            .box = {64, 1, 32, 1}},
                           &map);
  }).join();
  CHECK(made);
}

}  // namespace
}  // namespace cubinery::test
