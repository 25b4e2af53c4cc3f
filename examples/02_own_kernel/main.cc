// A kernel of one's own, through the same public calls as the library's: its key, compilation,
// cache, pre-warming and launch.  The template folder beside this file is all that it needs.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "rms_norm/fields.h"
#include "rms_norm/rms_norm_ref.h"

namespace {

constexpr int kRows = 1000;
constexpr int kCols = 768;
const RmsNormKey kKey{.dtype = cubinery::DType::kF32, .cols = kCols};

cubinery::Options options() {
  cubinery::Options options = cubinery::Options::from_env().value();
  options.template_dirs.emplace_back(RMS_NORM_TEMPLATE_DIR);
  return options;
}

// Fills the cache for an architecture; needs no GPU.
void prewarm(const char* arch) {
  cubinery::Options no_gpu = options();
  no_gpu.device = cubinery::kNoDevice;
  no_gpu.arch = arch;
  const cubinery::CompiledKernel made =
      cubinery::Context::create(no_gpu).value().compile(kKey).value();
  std::printf("%s for %s: %s, %d registers, %s\n", made.info.canonical.c_str(), arch,
              to_string(made.source), made.info.registers, made.path.c_str());
}

// A manifest of every variant, for cubinery prewarm --manifest.
void print_manifest() {
  std::string entries;
  cubinery::for_each_candidate(kKey, [&](const RmsNormKey& candidate) {
    if (!entries.empty()) entries += ",\n";
    entries += "{\"spec\":" + to_json(cubinery::spec_of(candidate).value()) + "}";
  });
  std::puts(("[" + entries + "]").c_str());
}

// Runs the kernel and returns its largest error against the reference.
double run() {
  const cubinery::Context context = cubinery::Context::create(options()).value();
  const cubinery::Kernel kernel = context.get(kKey).value();
  std::vector<float> x(kRows * kCols);
  std::vector<float> weight(kCols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (std::size_t c = 0; c < weight.size(); ++c)
    weight[c] = 1.0f + std::cos(static_cast<float>(c));
  void *device_x, *device_weight, *device_y;
  cudaMalloc(&device_x, x.size() * sizeof(float));
  cudaMalloc(&device_weight, weight.size() * sizeof(float));
  cudaMalloc(&device_y, x.size() * sizeof(float));
  cudaMemcpy(device_x, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(device_weight, weight.data(), weight.size() * sizeof(float), cudaMemcpyHostToDevice);
  const RmsNormParams params{.x = device_x, .weight = device_weight, .y = device_y, .rows = kRows};
  const unsigned blocks = static_cast<unsigned>((kRows + kKey.warps - 1) / kKey.warps);
  kernel.launch(nullptr, {.grid = {blocks}}, params).value();
  std::vector<float> y(x.size(), NAN);
  if (cudaMemcpy(y.data(), device_y, y.size() * sizeof(float), cudaMemcpyDeviceToHost) !=
      cudaSuccess) {
    return INFINITY;
  }
  const std::vector<double> expected = rms_norm_ref(x, weight);
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double error = std::abs(y[i] - expected[i]);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--manifest") == 0) return print_manifest(), 0;
  prewarm("sm_90a");
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no GPU: compiled and cached, not run");
    return 0;
  }
  const double error = run();
  std::printf("largest error against the reference: %.2e\n", error);
  return error < 1e-5 ? 0 : 1;
}
