#include "harness/draw.h"

#include <algorithm>
#include <cmath>

namespace cubinery {
namespace {

using gdn::ConvArgs;

std::vector<float> rows(const GdnDraw& draw, DataStream stream, std::int64_t dim, bool raw = true) {
  RowSource source(draw.data, stream, draw.n, draw.h, dim, raw);
  std::vector<float> numbers;
  numbers.reserve(idx(draw.rows * dim));
  for (std::int64_t r = 0; r < draw.rows; ++r) {
    const std::vector<float>& row = source.next();
    numbers.insert(numbers.end(), row.begin(), row.end());
  }
  return numbers;
}

// q or k.
std::vector<float> keys(const GdnDraw& draw, DataStream stream) {
  return rows(draw, stream, draw.problem.key_dim, draw.problem.inputs.use_qk_l2norm);
}

// Rows of a head's values.
template <DataStream kStream>
std::vector<float> values(const GdnDraw& draw) {
  return rows(draw, kStream, draw.problem.value_dim);
}

// Rows of all channels.
template <DataStream kStream>
std::vector<float> channels(const GdnDraw& draw) {
  return rows(draw, kStream, conv_split(draw.problem).end);
}

// So many for each channel, so that a sum over the taps is about 1.
std::vector<float> taps(const GdnDraw& draw, DataStream stream, int count) {
  std::vector<float> taps = rows(draw, stream, conv_split(draw.problem).end * count);
  for (float& tap : taps) tap *= 0.5f;
  return taps;
}

// `next`: of a GateSource; `width` of each row.
template <class Next>
std::vector<float> gates(const GdnDraw& draw, Next next, int width = 1) {
  GateSource source(draw.problem.inputs.gate_mode, draw.problem.inputs.beta_mode, draw.data, draw.n,
                    draw.h);
  std::vector<float> numbers(idx(draw.rows * width));
  for (float& number : numbers) number = (source.*next)();
  return numbers;
}

struct Source {
  TensorId tensor;
  std::vector<float> (*draw)(const GdnDraw& draw);
};
constexpr Source kSources[] = {
    {TensorId::kQ, [](const GdnDraw& draw) { return keys(draw, DataStream::kQ); }},
    {TensorId::kK, [](const GdnDraw& draw) { return keys(draw, DataStream::kK); }},
    {TensorId::kV, values<DataStream::kV>},
    {TensorId::kG, drawn_gates},
    {TensorId::kBeta, [](const GdnDraw& draw) { return gates(draw, &GateSource::next_beta); }},
    {TensorId::kALog, [](const GdnDraw& draw) { return gates(draw, &GateSource::a_log); }},
    {TensorId::kDtBias,
     [](const GdnDraw& draw) {
       return gates(draw, &GateSource::next_dt_bias, decay_width(draw.problem));
     }},
    {TensorId::kState, values<DataStream::kState>},
    {TensorId::kZ, values<DataStream::kZ>},
    {TensorId::kNormWeight, values<DataStream::kNormWeight>},
    {TensorId::kX, channels<DataStream::kX>},
    {TensorId::kConvWeight,
     [](const GdnDraw& draw) {
       return taps(draw, DataStream::kConvWeight, draw.problem.conv.width);
     }},
    {TensorId::kConvBias, [](const GdnDraw& draw) { return taps(draw, DataStream::kConvBias, 1); }},
    {TensorId::kConvState, channels<DataStream::kConvState>},
};

const Source* source_of(TensorId tensor) {
  for (const Source& source : kSources) {
    if (source.tensor == tensor) return &source;
  }
  return nullptr;
}

}  // namespace

bool is_drawn(TensorId tensor) { return source_of(tensor) != nullptr; }

std::vector<float> drawn(const GdnDraw& draw, TensorId tensor) {
  return source_of(tensor)->draw(draw);
}

std::vector<float> drawn_gates(const GdnDraw& draw) {
  return gates(draw, &GateSource::next_gate, decay_width(draw.problem));
}

// Half of the tokens go on from the one in front of them, so that there are long paths.
std::vector<std::int64_t> draw_parents(const DataOptions& data, std::int64_t n,
                                       std::int64_t tokens) {
  Random random = random_of(data.seed, DataStream::kParents, n, 0);
  std::vector<std::int64_t> parents;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool follows = random.uniform() < 0.5;
    const double any = std::floor(random.uniform(-1, static_cast<double>(t)));
    parents.push_back(follows ? t - 1 : static_cast<std::int64_t>(any));
  }
  return parents;
}

Random conv_random(std::uint64_t seed, TensorId tensor) {
  const auto& row = gdn::row_of<ConvArgs>(tensor);
  return Random(seed, static_cast<std::uint64_t>(&row - gdn::kTensorRows<ConvArgs>.data()));
}

Random conv_slot_random(std::uint64_t seed) {
  return Random(seed, gdn::kTensorRows<ConvArgs>.size());
}

bool is_conv_drawn(TensorId tensor) {
  constexpr TensorId kDrawn[] = {TensorId::kX,      TensorId::kConvWeight, TensorId::kConvBias,
                                 TensorId::kA,      TensorId::kB,          TensorId::kALog,
                                 TensorId::kDtBias, TensorId::kState};
  return std::find(std::begin(kDrawn), std::end(kDrawn), tensor) != std::end(kDrawn);
}

float draw_conv(TensorId tensor, Random& random) {
  if (tensor == TensorId::kALog) return static_cast<float>(std::log(random.uniform(1, 16)));
  // As of a freshly initialised model.
  if (tensor == TensorId::kDtBias) {
    const double dt = std::exp(random.uniform(std::log(1e-3), std::log(0.1)));
    return static_cast<float>(std::log(std::expm1(dt)));
  }
  // So that a sum over the taps is about 1.
  const bool is_tap = tensor == TensorId::kConvWeight || tensor == TensorId::kConvBias;
  return (is_tap ? 0.5f : 1.0f) * random.normal();
}

}  // namespace cubinery
