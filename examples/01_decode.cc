// One decode step of Qwen3-Next's linear attention for a batch of requests, checked against the
// reference.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "cubinery/gdn.h"
#include "gdn_decode/gdn_decode_ref.h"

using namespace cubinery;

constexpr int kBatch = 8, kKeyHeads = 16, kHeads = 32, kDim = 128;

// A float tensor on the device and its copy on the host.
struct Values {
  std::vector<float> host;
  Tensor device;

  Values(float spread, std::initializer_list<std::int64_t> shape) {
    static std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    while (host.size() < count) host.push_back(spread * normal(random));
    void* memory = nullptr;
    cudaMalloc(&memory, count * sizeof(float));
    cudaMemcpy(memory, host.data(), count * sizeof(float), cudaMemcpyHostToDevice);
    device = Tensor::contiguous(memory, DType::kF32, shape);
  }
  std::vector<double> row(std::size_t at, std::size_t length) const {
    return {&host[at * length], &host[at * length] + length};
  }
};

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("no GPU"), 77;

  const Values q(1, {kBatch, kKeyHeads, kDim}), k(1, {kBatch, kKeyHeads, kDim});
  const Values v(1, {kBatch, kHeads, kDim}), state(0.1f, {kBatch, kHeads, kDim, kDim});
  const Values g(-0.1f, {kBatch, kHeads}), beta(0.3f, {kBatch, kHeads});
  Values o(0, {kBatch, kHeads, kDim});

  const Context context = Context::create(Options::from_env().value()).value();
  gdn::DecodeProblem problem{.heads = {.q = kKeyHeads, .k = kKeyHeads, .v = kHeads}};
  problem.dtype = problem.output_dtype = DType::kF32;
  problem.states.layout = gdn::StateLayout::kKV;
  problem.inputs.use_qk_l2norm = true;
  const gdn::Decode decode = context.prepare(problem).value();
  const gdn::DecodeArgs args{.q = q.device,
                             .k = k.device,
                             .v = v.device,
                             .g = g.device,
                             .beta = beta.device,
                             .o = o.device,
                             .state = state.device};
  decode.launch(nullptr, args).value();
  cudaMemcpy(o.host.data(), o.device.data, o.host.size() * sizeof(float), cudaMemcpyDeviceToHost);

  double worst = 0;
  for (std::size_t h = 0; h < kBatch * kHeads; ++h) {  // a request and head
    gdn::DecodeRefHead<double> head{.key_dim = kDim, .value_dim = kDim, .inputs = problem.inputs};
    head.scale = 1 / std::sqrt(double{kDim});
    head.q = q.row(h / (kHeads / kKeyHeads), kDim);
    head.k = k.row(h / (kHeads / kKeyHeads), kDim);
    head.v = v.row(h, kDim);
    head.gate = {g.host[h]};
    head.beta = beta.host[h];
    std::vector<double> head_state = state.row(h, kDim * kDim), expected(kDim);
    gdn::gdn_decode_ref(head, head_state.data(), expected.data());
    for (std::size_t i = 0; i < kDim; ++i) {
      const double error = std::abs(o.host[h * kDim + i] - expected[i]);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  std::printf("%s: largest error of o: %.2e\n", context.arch().c_str(), worst);
  return worst < 1e-5 ? 0 : 1;
}
