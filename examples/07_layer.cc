// A Gated DeltaNet layer between its projections, as an engine runs it for two requests: a packed
// prefill, a decoding step, then draft tokens of which some are accepted.  Each time the causal
// convolution makes q, k and v of what the projection gave, and the recurrence makes o of them.
// Both keep what a request has behind it in slots of a pool.  Checked against the layer in double
// on the host, which takes the accepted tokens one by one.
//   example_07_layer [config.json [tp]]     of a model, on one of tp GPUs; without: of a small one
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "gdn_conv/gdn_conv_ref.h"
#include "gdn_decode/gdn_decode_ref.h"
#include "tensors.h"

using namespace cubinery;

constexpr char kSmallModel[] = R"({
  "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
  "linear_key_head_dim": 64, "linear_value_head_dim": 64, "dtype": "bfloat16"})";
constexpr double kLimit = 3 * 0x1p-8;  // three units in the last place of bf16

enum class Kind { kPrefill, kDecode, kVerify };
struct Step {
  const char* name;
  Kind kind;
  int tokens[2];    // of the two requests
  int accepted[2];  // so many of their tokens in the step in front stay
};
constexpr Step kSteps[] = {{"prefill", Kind::kPrefill, {37, 64}, {0, 0}},
                           {"decode, and the norm behind it", Kind::kDecode, {1, 1}, {37, 64}},
                           {"verify a token and three drafts", Kind::kVerify, {4, 4}, {1, 1}},
                           {"again, behind 2 and 4 of these", Kind::kVerify, {4, 4}, {2, 4}},
                           {"a token behind 3 and 1 of these", Kind::kVerify, {1, 1}, {3, 1}}};
constexpr int kTokens = 101 + 2 + 8 + 8 + 2;

Tensor rows(Tensor x, int first, int count) {
  x.data = static_cast<char*>(x.data) + first * x.strides[0] * size_of(x.dtype);
  x.shape[0] = count;
  return x;
}

struct Layer {
  gdn::ModelProblems model;
  int keys = model.conv.heads.k, heads = model.conv.heads.v;
  int key_dim = model.conv.key_dim, value_dim = model.conv.value_dim, width = model.conv.width;
  int channels = 2 * keys * key_dim + heads * value_dim, most = model.verify.draft_tokens;
  DType dtype = model.conv.dtype;

  // What the projections give for the tokens of all steps, one step behind the other.
  Tensor x = values(dtype, 0, 1, {kTokens, channels});
  Tensor a = values(dtype, 0, 1, {kTokens, heads}), b = values(dtype, 0, 1, {kTokens, heads});
  Tensor z = values(dtype, 0, 1, {kTokens, heads, value_dim});
  // Weights.  A_log makes decays of about 0.9, so that what lies far behind a token counts.
  Tensor weight = values(dtype, 0, 0.5f, {channels, width});
  Tensor A_log = values(DType::kF32, -2, 0.3f, {heads}), dt_bias = values(dtype, 0, 0.5f, {heads});
  Tensor norm_weight = values(DType::kF32, 1, 0.1f, {value_dim});
  // What the kernels write.
  Tensor q = values(dtype, 0, 0, {kTokens, keys, key_dim});
  Tensor k = values(dtype, 0, 0, {kTokens, keys, key_dim});
  Tensor v = values(dtype, 0, 0, {kTokens, heads, value_dim});
  Tensor o = values(dtype, 0, 0, {kTokens, heads, value_dim});

  // The convolution's pool.  A request has one slot, with the columns that a verification of `most`
  // tokens fills: all its inputs, of which the next launch takes those that `accepted` says.  It
  // is told which requests are new (is_old), so that nobody has to clear their slots.
  Tensor windows = values(model.conv.states.dtype, 0, 1, {3, channels, width - 2 + most});
  Tensor window_slots = numbers({2, 0}, {2});
  Tensor is_old = Tensor::contiguous(numbers({0}, {1}).data, DType::kBool, {2});
  // The recurrence's.  A request has `most` slots, for the state after each token of a
  // verification. A prefill and a decoding step use the first, which is zero for a new request.
  Tensor states = values(model.verify.states.dtype, 0, 0, {9, heads, value_dim, key_dim});
  Tensor state_slots = numbers({7, 2, 5, 0, 1, 8, 3, 6}, {2, most});

  gdn::ConvArgs conv_args(int first, int count, const Tensor& bounds) const {
    return {.x = rows(x, first, count),
            .weight = weight,
            .q = rows(q, first, count),
            .k = rows(k, first, count),
            .v = rows(v, first, count),
            .cu_seqlens = bounds,
            .state = windows,
            .state_indices = window_slots};
  }
  // Of a prefill, a decoding step, a verification.
  template <class Args>
  Args args(int first, int count, const Tensor& slots) const {
    return {.q = rows(q, first, count),
            .k = rows(k, first, count),
            .v = rows(v, first, count),
            .g = rows(a, first, count),
            .beta = rows(b, first, count),
            .A_log = A_log,
            .dt_bias = dt_bias,
            .o = rows(o, first, count),
            .state = states,
            .state_indices = slots};
  }
};

struct Operators {
  gdn::Conv conv, conv_of_drafts;
  gdn::Prefill prefill;
  gdn::Decode decode;
  gdn::Verify verify;
  gdn::Workspace workspace{};
};

Operators prepare(const Context& context, gdn::ModelProblems model) {
  model.decode.output_norm = gdn::OutputNorm::kGatedRms;
  Operators made{context.prepare(model.conv).value(), context.prepare(model.conv_verify).value(),
                 context.prepare(model.prefill).value(), context.prepare(model.decode).value(),
                 context.prepare(model.verify).value()};
  made.workspace.bytes = made.prefill.workspace_bytes({.tokens = kTokens, .sequences = 2});
  if (cudaMalloc(&made.workspace.data, made.workspace.bytes) != cudaSuccess) std::exit(2);
  return made;
}

// Enqueues the step whose tokens begin in row `first`: the convolution, then the recurrence.
void launch(const Operators& run, const Layer& layer, const Step& step, int first) {
  const int count = step.tokens[0] + step.tokens[1];
  const Tensor bounds = numbers({0, step.tokens[0], count}, {3});
  gdn::ConvArgs conv = layer.conv_args(first, count, bounds);
  if (step.kind == Kind::kVerify) {
    // Both go on behind the accepted tokens of the launch in front; a prefill, and a decoding step,
    // leave what a verification of one token would.
    conv.accepted = numbers({step.accepted[0], step.accepted[1]}, {2});
    run.conv_of_drafts.launch(nullptr, conv).value();
    auto args = layer.args<gdn::VerifyArgs>(first, count, layer.state_slots);
    args.cu_seqlens = bounds;
    args.accepted = conv.accepted;
    return run.verify.launch(nullptr, args).value();
  }
  conv.state.shape[2] = layer.width - 1;  // the first columns; strides stay
  if (step.kind == Kind::kPrefill) conv.has_initial_state = layer.is_old;
  run.conv.launch(nullptr, conv).value();
  Tensor slots = layer.state_slots;
  slots.rank = 1;  // the first slot of each request
  if (step.kind == Kind::kPrefill) {
    auto args = layer.args<gdn::PrefillArgs>(first, count, slots);
    args.cu_seqlens = bounds;
    return run.prefill.launch(nullptr, args, run.workspace).value();
  }
  auto args = layer.args<gdn::DecodeArgs>(first, count, slots);
  args.z = rows(layer.z, first, count);
  args.norm_weight = layer.norm_weight;
  run.decode.launch(nullptr, args).value();
}

// What a request has behind it, in double: the last inputs of channels, the states of heads.
struct Request {
  const Layer* layer;
  std::vector<std::vector<double>> inputs, states;

  explicit Request(const Layer& of) : layer(&of) {
    inputs.resize(of.channels, std::vector<double>(of.width - 1));
    states.resize(of.heads, std::vector<double>(of.key_dim * of.value_dim));
  }
  // q, k and v of the token in this row, head behind head.
  std::vector<double> convolve(int row) {
    std::vector<double> y;
    for (int c = 0; c < layer->channels; ++c) {
      const auto taps = values(layer->weight, c * layer->width, layer->width);
      const double x = value(layer->x, row * layer->channels + c);
      y.push_back(gdn::conv_ref<double>({.taps = taps, .before = inputs[c]}, {x})[0]);
      inputs[c].push_back(x);
      inputs[c].erase(inputs[c].begin());
    }
    return y;
  }
  // Its o.
  std::vector<double> take(int row, bool is_normed = false) {
    const int key_dim = layer->key_dim, value_dim = layer->value_dim, heads = layer->heads;
    const std::vector<double> y = convolve(row);
    std::vector<double> o(heads * value_dim);
    for (int h = 0; h < heads; ++h) {
      const double* q = &y[h / (heads / layer->keys) * key_dim];
      const double* k = q + layer->keys * key_dim;
      const double* v = &y[2 * layer->keys * key_dim + h * value_dim];
      gdn::DecodeRefHead<double> head{key_dim, value_dim, layer->model.decode.inputs};
      head.scale = 1 / std::sqrt(key_dim);
      head.q.assign(q, q + key_dim);
      head.k.assign(k, k + key_dim);
      head.v.assign(v, v + value_dim);
      head.gate = {value(layer->a, row * heads + h)};
      head.beta = value(layer->b, row * heads + h);
      head.a_log = value(layer->A_log, h);
      head.dt_bias = {value(layer->dt_bias, h)};
      gdn::gdn_decode_ref(head, states[h].data(), &o[h * value_dim]);
      if (!is_normed) continue;
      const auto z = values(layer->z, (row * heads + h) * value_dim, value_dim);
      gdn::gated_rms_ref(gdn::OutputNorm::kGatedRms, values(layer->norm_weight, 0, value_dim), z,
                         1e-6, &o[h * value_dim]);
    }
    return o;
  }
};

// The largest difference of a step's o, relative to its largest value.  A request is what it was
// afterwards: of drafts nobody knows yet which are accepted.
double difference(const Layer& layer, const Step& step, int row, const Request* requests) {
  double error = 0, largest = 0;
  for (int n = 0; n < 2; ++n) {
    Request drafts = requests[n];
    for (int t = 0; t < step.tokens[n]; ++t, ++row) {
      int i = row * layer.heads * layer.value_dim;
      for (const double y : drafts.take(row, step.kind == Kind::kDecode)) {
        const double e = std::abs(value(layer.o, i++) - y);
        error = std::isnan(e) ? INFINITY : std::max(error, e);
        largest = std::max(largest, std::abs(y));
      }
    }
  }
  return error / largest;
}

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("no GPU"), 77;

  std::string config = kSmallModel;
  std::ifstream file(argc > 1 ? argv[1] : "");
  if (argc > 1) config.assign(std::istreambuf_iterator<char>(file), {});
  const Layer layer{gdn::problems_for_model(config, argc > 2 ? std::atoi(argv[2]) : 1).value()};
  if (layer.dtype != DType::kBF16) return std::puts("dtype: accepted: bfloat16"), 4;
  const Context context = Context::create(Options::from_env().value()).value();
  const Operators operators = prepare(context, layer.model);

  Request requests[] = {Request(layer), Request(layer)};
  int row = 0, in_front[2] = {};  // where tokens of this step begin, and of the one in front
  double worst = 0;
  for (const Step& step : kSteps) {
    launch(operators, layer, step, row);
    if (cudaDeviceSynchronize() != cudaSuccess) return 3;
    for (int n = 0; n < 2; ++n) {
      for (int t = 0; t < step.accepted[n]; ++t) requests[n].take(in_front[n] + t);
    }
    const double found = difference(layer, step, row, requests);
    std::printf("%-31s: o differs by %.1e of its largest value\n", step.name, found);
    worst = std::max(worst, found);
    in_front[0] = row;
    in_front[1] = row + step.tokens[0];
    row += step.tokens[0] + step.tokens[1];
  }
  std::printf("%s: limit %.1e\n", context.arch().c_str(), kLimit);
  return worst < kLimit ? 0 : 1;
}
