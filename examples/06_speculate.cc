// Speculative decoding as engines run it: a verification of draft tokens keeps no states; once it
// is known how many of each request are accepted, one launch commits them in all layers, and
// decoding goes on.  Checked against plain decoding of the accepted tokens, in double on the host.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "cubinery/gdn.h"
#include "tensors.h"

using namespace cubinery;

constexpr int kLayers = 3, kRequests = 4, kTokens = 5, kKeyHeads = 2, kHeads = 4, kDim = 64;
constexpr std::int32_t kAccepted[kRequests] = {5, 1, 3, 2};  // what sampling decides
// Relative to the largest value of a row of o, or of a state.
constexpr double kTolerance = 2e-5;

// [kRequests, kTokens + 1, ...]: the tokens to verify, then the one that is decoded after them.
struct Layer {
  Tensor q = values(DType::kBF16, 0, 1, {kRequests, kTokens + 1, kKeyHeads, kDim});
  Tensor k = values(DType::kBF16, 0, 0.125f, {kRequests, kTokens + 1, kKeyHeads, kDim});
  Tensor v = values(DType::kBF16, 0, 1, {kRequests, kTokens + 1, kHeads, kDim});
  Tensor g = values(DType::kF32, -0.1f, 0.02f, {kRequests, kTokens + 1, kHeads});
  Tensor beta = values(DType::kF32, 0.5f, 0.1f, {kRequests, kTokens + 1, kHeads});
  Tensor o = values(DType::kF32, 0, 0, {kRequests, kTokens + 1, kHeads, kDim});
  Tensor state = values(DType::kF32, 0, 0.1f, {kRequests, kHeads, kDim, kDim});  // value, key
  std::vector<float> start{static_cast<float*>(state.data),
                           static_cast<float*>(state.data) + kRequests* kHeads* kDim* kDim};

  static Tensor span(Tensor x, int first, int count) {
    x.data = static_cast<char*>(x.data) + first * x.strides[1] * size_of(x.dtype);
    x.shape[1] = count;
    return x;
  }
  // Of VerifyProblem and of DecodeProblem.
  template <class Args>
  Args args(int first, int count) const {
    return {.q = span(q, first, count),
            .k = span(k, first, count),
            .v = span(v, first, count),
            .g = span(g, first, count),
            .beta = span(beta, first, count),
            .o = span(o, first, count),
            .state = state};
  }
  gdn::CommitLayer verified() const {
    const auto of = args<gdn::VerifyArgs>(0, kTokens);
    return {.k = of.k, .v = of.v, .g = of.g, .beta = of.beta, .state = state};
  }
};

// The recurrence of one head of one request, token by token.
struct Head {
  const Layer& layer;
  int n, h;
  std::vector<double> state = std::vector<double>(kDim * kDim);

  Head(const Layer& of, int request, int head) : layer(of), n(request), h(head) {
    for (int i = 0; i < kDim * kDim; ++i)
      state[i] = layer.start[(n * kHeads + h) * kDim * kDim + i];
  }
  // o of token t.
  std::vector<double> step(int t) {
    const int row = (n * (kTokens + 1) + t) * kHeads + h;
    const int key_row = row / (kHeads / kKeyHeads);
    std::vector<double> o(kDim);
    for (int i = 0; i < kDim; ++i) {
      double held = 0;
      for (int j = 0; j < kDim; ++j) {
        double& s = state[i * kDim + j];
        s *= std::exp(value(layer.g, row));
        held += s * value(layer.k, key_row * kDim + j);
      }
      const double u = value(layer.beta, row) * (value(layer.v, row * kDim + i) - held);
      for (int j = 0; j < kDim; ++j) {
        double& s = state[i * kDim + j];
        s += u * value(layer.k, key_row * kDim + j);
        o[i] += s * value(layer.q, key_row * kDim + j) / std::sqrt(double{kDim});
      }
    }
    return o;
  }
};

// Largest difference of values from `at` on, relative to the largest of those.
double difference(const Tensor& actual, std::int64_t at, const std::vector<double>& expected) {
  double error = 0, largest = 0;
  for (const double y : expected) {
    const double e = std::abs(value(actual, at++) - y);
    error = std::isnan(e) ? INFINITY : std::max(error, e);
    largest = std::max(largest, std::abs(y));
  }
  return error / largest;
}

template <class Problem>
Problem problem() {
  Problem problem{
      .heads = {.q = kKeyHeads, .k = kKeyHeads, .v = kHeads}, .key_dim = kDim, .value_dim = kDim};
  if constexpr (requires { problem.output_dtype; }) problem.output_dtype = DType::kF32;
  if constexpr (requires { problem.draft_tokens; }) problem.draft_tokens = kTokens;
  return problem;
}

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("no GPU"), 77;

  const Context context = Context::create(Options::from_env().value()).value();
  auto keeps_none = problem<gdn::VerifyProblem>();
  keeps_none.states.store = false;
  const gdn::Verify verify = context.prepare(keeps_none).value();
  const gdn::Commit commit = context.prepare(problem<gdn::CommitProblem>()).value();
  const gdn::Decode decode = context.prepare(problem<gdn::DecodeProblem>()).value();

  // When the model is loaded: where each layer leaves what a commit reads.
  const std::vector<Layer> layers(kLayers);
  std::vector<gdn::CommitLayer> verified;
  verified.reserve(layers.size());
  for (const Layer& layer : layers) verified.push_back(layer.verified());
  const std::vector<std::int64_t> words = commit.table(verified).value();
  const Tensor table =
      Tensor::contiguous(managed(words.size() * sizeof words[0]), DType::kI64, {kLayers, 32});
  std::copy(words.begin(), words.end(), static_cast<std::int64_t*>(table.data));
  const Tensor accepted = Tensor::contiguous(managed(sizeof kAccepted), DType::kI32, {kRequests});

  for (const Layer& layer : layers) {
    verify.launch(nullptr, layer.args<gdn::VerifyArgs>(0, kTokens)).value();
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return 3;
  std::copy_n(kAccepted, kRequests, static_cast<std::int32_t*>(accepted.data));
  commit.launch(nullptr, {.layers = table, .accepted = accepted}).value();
  for (const Layer& layer : layers) {
    decode.launch(nullptr, layer.args<gdn::DecodeArgs>(kTokens, 1)).value();
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return 3;

  double of_verify = 0, of_decode = 0, of_state = 0;
  for (const Layer& layer : layers) {
    for (int n = 0; n < kRequests; ++n) {
      for (int h = 0; h < kHeads; ++h) {
        const auto at = [&](int t) { return ((n * (kTokens + 1) + t) * kHeads + h) * kDim; };
        Head drafts(layer, n, h), plain(layer, n, h);
        for (int t = 0; t < kTokens; ++t) {
          of_verify = std::max(of_verify, difference(layer.o, at(t), drafts.step(t)));
        }
        for (int t = 0; t < kAccepted[n]; ++t) plain.step(t);
        of_decode = std::max(of_decode, difference(layer.o, at(kTokens), plain.step(kTokens)));
        const int state = (n * kHeads + h) * kDim * kDim;
        of_state = std::max(of_state, difference(layer.state, state, plain.state));
      }
    }
  }
  std::printf(
      "%s: %d layers, %d requests of %d tokens, of which 5, 1, 3 and 2 are accepted, against "
      "decoding these: o of the verification differs by %.1e, o of the next token by %.1e, the "
      "state by %.1e, of its largest value\n",
      context.arch().c_str(), kLayers, kRequests, kTokens, of_verify, of_decode, of_state);
  return std::max({of_verify, of_decode, of_state}) < kTolerance ? 0 : 1;
}
