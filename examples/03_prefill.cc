// A prompt in two pieces, then decode steps, as engines run them: the state stays in a slot of a
// pool.  Checked against one prefill of all tokens in another slot.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cubinery/gdn.h"
#include "tensors.h"

using namespace cubinery;

constexpr int kKeyHeads = 16, kHeads = 32, kDim = 128, kTokens = 308;
// Relative to the largest value of a row of o, or of a state.  Operands in f32 are multiplied with
// about 21 bits, and decode sums in another order than prefill.
constexpr double kTolerance = 2e-5;

// The inputs of one layer, [1, kTokens, ...], and its pool of two states.
struct Layer {
  Tensor q = values(DType::kF32, 0, 1, {1, kTokens, kKeyHeads, kDim});
  Tensor k = values(DType::kF32, 0, 1, {1, kTokens, kKeyHeads, kDim});
  Tensor v = values(DType::kF32, 0, 1, {1, kTokens, kHeads, kDim});
  Tensor g = values(DType::kF32, -0.1f, 0.02f, {1, kTokens, kHeads});
  Tensor beta = values(DType::kF32, 0.5f, 0.1f, {1, kTokens, kHeads});
  Tensor pool = values(DType::kF32, 0, 0, {2, kHeads, kDim, kDim});
  Tensor slots = numbers({0, 1}, {2});

  // `count` tokens from `first` on, of PrefillProblem and of DecodeProblem.
  template <class Args>
  Args args(const Tensor& o, int slot, int first, int count) const {
    const auto span = [&](Tensor x) {
      x.data = static_cast<float*>(x.data) + first * x.strides[1];
      x.shape[1] = count;
      return x;
    };
    const auto index = static_cast<std::int32_t*>(slots.data) + slot;
    return {.q = span(q),
            .k = span(k),
            .v = span(v),
            .g = span(g),
            .beta = span(beta),
            .o = span(o),
            .state = pool,
            .state_indices = Tensor::contiguous(index, DType::kI32, {1})};
  }

  template <class Problem>
  static Problem problem() {
    Problem problem{.heads = {.q = kKeyHeads, .k = kKeyHeads, .v = kHeads}};
    problem.dtype = problem.output_dtype = DType::kF32;
    problem.states.location = gdn::StateLocation::kPool;
    problem.inputs.use_qk_l2norm = true;
    return problem;
  }
};

// Largest difference within a row of values, relative to the row's largest value; the worst row.
double difference(const void* actual, const void* expected, int rows, int row) {
  const auto *x = static_cast<const float*>(actual), *y = static_cast<const float*>(expected);
  double worst = 0;
  for (int r = 0; r < rows; ++r) {
    double error = 0, largest = 0;
    for (int i = 0; i < row; ++i, ++x, ++y) {
      const double e = std::abs(double{*x} - *y);
      error = std::isnan(e) ? INFINITY : std::max(error, e);
      largest = std::max(largest, std::abs(double{*y}));
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("no GPU"), 77;

  const Context context = Context::create(Options::from_env().value()).value();
  const gdn::Prefill prefill = context.prepare(Layer::problem<gdn::PrefillProblem>()).value();
  const gdn::Decode decode = context.prepare(Layer::problem<gdn::DecodeProblem>()).value();
  gdn::Workspace workspace{.bytes = prefill.workspace_bytes({.tokens = kTokens, .sequences = 1})};
  if (cudaMalloc(&workspace.data, workspace.bytes) != cudaSuccess) return 2;

  const Layer layer;
  const Tensor pieces = values(DType::kF32, 0, 0, {1, kTokens, kHeads, kDim});
  const Tensor whole = values(DType::kF32, 0, 0, {1, kTokens, kHeads, kDim});
  const auto run = [&](const Tensor& o, int slot, int first, int count) {
    const auto args = layer.args<gdn::PrefillArgs>(o, slot, first, count);
    prefill.launch(nullptr, args, workspace).value();
  };
  run(pieces, 0, 0, 200);
  run(pieces, 0, 200, 100);
  for (int t = 300; t < kTokens; ++t) {
    decode.launch(nullptr, layer.args<gdn::DecodeArgs>(pieces, 0, t, 1)).value();
  }
  run(whole, 1, 0, kTokens);
  if (cudaDeviceSynchronize() != cudaSuccess) return 3;

  constexpr std::ptrdiff_t kState = kDim * kDim;
  const auto* states = static_cast<const float*>(layer.pool.data);
  const double of_o = difference(pieces.data, whole.data, kTokens * kHeads, kDim);
  const double of_state = difference(states, states + kHeads * kState, kHeads, kDim * kDim);
  std::printf(
      "%s: 200 + 100 tokens and 8 decode steps against one prefill of 308: o differs by "
      "%.1e, the state by %.1e, of its largest value\n",
      context.arch().c_str(), of_o, of_state);
  return of_o < kTolerance && of_state < kTolerance ? 0 : 1;
}
