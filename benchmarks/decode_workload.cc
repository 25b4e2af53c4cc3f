#include "benchmarks/decode_workload.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "templates/gdn_decode/gdn_decode_ref.h"
#include "tests/random.h"
#include "tests/rounding.h"

namespace cubinery::bench {
namespace {

using gdn::DecodeProblem;
using test::Random;

// Random states repeat after this many bytes of the pool, and requests compared with the reference
// are few: both only save time of the host.
constexpr std::size_t kPatternBytes = std::size_t{64} << 20;
constexpr std::int64_t kComparedRequests = 4;

}  // namespace

DecodeProblem engine_problem(DType state_dtype, gdn::StateLayout layout) {
  DecodeProblem problem;
  problem.gate_dtype = problem.beta_dtype = DType::kBF16;
  problem.state_dtype = state_dtype;
  problem.state_layout = layout;
  problem.state_location = gdn::StateLocation::kPool;
  problem.padding = gdn::Padding::kSkip;
  problem.gate_mode = gdn::GateMode::kComputed;
  problem.beta_mode = gdn::BetaMode::kLogit;
  problem.use_qk_l2norm = true;
  return problem;
}

DecodeWorkload::DecodeWorkload(const Gpu& gpu, const DecodeProblem& problem, int batch)
    : gpu_(gpu), problem_(problem), batch_(batch) {
  const int sets = rotation(bytes() / 2);  // in place: what is read is what is written
  slots_ = std::int64_t{sets} * batch;
  pool_ = DeviceBuffer(gpu, idx(slots_) * slot_bytes());
  const std::size_t pattern = std::min(pool_.bytes(), kPatternBytes);
  fill(gpu, pool_,
       normal_bytes(problem.state_dtype,
                    pattern / static_cast<std::size_t>(size_of(problem.state_dtype)), 1));
  Random random(1, 2);
  const std::vector<std::int64_t> order = random.permutation(0, slots_);
  for (int set = 0; set < sets; ++set) {
    const auto first = order.begin() + set * batch;
    make_set({first, first + batch});
  }
  // As a model is initialised: A in [1, 16], step sizes in [1e-3, 0.1].
  std::vector<float> a_log, dt_bias;
  for (int h = 0; h < problem.heads(); ++h) {
    a_log.push_back(static_cast<float>(std::log(random.uniform(1, 16))));
    const double dt = std::exp(random.uniform(std::log(1e-3), std::log(0.1)));
    dt_bias.push_back(static_cast<float>(std::log(std::expm1(dt))));
  }
  a_log_ = upload(gpu, bytes_of(a_log));
  dt_bias_ = upload(gpu, bytes_of(dt_bias));
}

void DecodeWorkload::make_set(const std::vector<std::int64_t>& slots) {
  const DecodeProblem& p = problem_;
  const std::uint64_t stream = 10 * (1 + sets_.size());
  const std::size_t batch = idx(batch_);
  std::vector<std::int32_t> indices;
  for (const std::int64_t slot : slots) indices.push_back(static_cast<std::int32_t>(slot));
  const std::size_t q = batch * idx(p.q_heads) * idx(p.key_dim);
  const std::size_t k = batch * idx(p.k_heads) * idx(p.key_dim);
  const std::size_t v = batch * idx(p.v_heads) * idx(p.value_dim);
  const std::size_t gates = batch * idx(p.heads());
  const std::size_t o = gates * idx(p.value_dim) * idx(size_of(p.output_dtype));
  Set set{.q = upload(gpu_, normal_bytes(p.dtype, q, stream)),
          .k = upload(gpu_, normal_bytes(p.dtype, k, stream + 1)),
          .v = upload(gpu_, normal_bytes(p.dtype, v, stream + 2)),
          .a = upload(gpu_, normal_bytes(p.gate_dtype, gates, stream + 3)),
          .b = upload(gpu_, normal_bytes(p.beta_dtype, gates, stream + 4)),
          .o = DeviceBuffer(gpu_, o),
          .read = upload(gpu_, bytes_of(indices))};
  sets_.push_back(std::move(set));
  set_slots_.push_back(slots);
}

std::size_t DecodeWorkload::slot_bytes() const {
  return idx(problem_.heads()) * idx(problem_.key_dim) * idx(problem_.value_dim) *
         idx(size_of(problem_.state_dtype));
}

std::size_t DecodeWorkload::bytes() const {
  const DecodeProblem& p = problem_;
  const std::int64_t keys = std::int64_t{p.q_heads + p.k_heads} * p.key_dim * size_of(p.dtype);
  const std::int64_t operands =
      keys + std::int64_t{p.v_heads} * p.value_dim * size_of(p.dtype) +
      std::int64_t{p.heads()} * p.value_dim * size_of(p.output_dtype) +
      std::int64_t{p.heads()} * (size_of(p.gate_dtype) + size_of(p.beta_dtype)) +
      size_of(p.index_dtype);
  return idx(batch_) * (2 * slot_bytes() + idx(operands));
}

gdn::DecodeArgs DecodeWorkload::args(int set) const {
  const DecodeProblem& p = problem_;
  const Set& s = sets_[idx(set)];
  const bool kv = p.state_layout == gdn::StateLayout::kKV;
  const std::int64_t rows = kv ? p.key_dim : p.value_dim;
  const std::int64_t columns = kv ? p.value_dim : p.key_dim;
  gdn::DecodeArgs args;
  args.q = Tensor::contiguous(s.q.data(), p.dtype, {batch_, p.q_heads, p.key_dim});
  args.k = Tensor::contiguous(s.k.data(), p.dtype, {batch_, p.k_heads, p.key_dim});
  args.v = Tensor::contiguous(s.v.data(), p.dtype, {batch_, p.v_heads, p.value_dim});
  args.g = Tensor::contiguous(s.a.data(), p.gate_dtype, {batch_, p.heads()});
  args.beta = Tensor::contiguous(s.b.data(), p.beta_dtype, {batch_, p.heads()});
  args.A_log = Tensor::contiguous(a_log_.data(), p.a_log_dtype, {p.heads()});
  args.dt_bias = Tensor::contiguous(dt_bias_.data(), p.dt_bias_dtype, {p.heads()});
  args.o = Tensor::contiguous(s.o.data(), p.output_dtype, {batch_, p.heads(), p.value_dim});
  args.state = Tensor::contiguous(pool_.data(), p.state_dtype, {slots_, p.heads(), rows, columns});
  args.state_indices = Tensor::contiguous(s.read.data(), p.index_dtype, {batch_});
  return args;
}

Errors DecodeWorkload::errors(const gdn::Decode& decode) const {
  const std::int64_t compared = std::min(batch_, kComparedRequests);
  std::vector<std::vector<std::byte>> before;
  for (std::int64_t n = 0; n < compared; ++n) {
    before.push_back(pool_.download(idx(set_slots_[0][idx(n)]) * slot_bytes(), slot_bytes()));
  }
  const test::TestStream stream(gpu_);
  const Status status = decode.launch(stream.get(), args(0));
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  stream.synchronize();
  Errors errors;
  for (std::int64_t n = 0; n < compared; ++n) compare(n, before[idx(n)], &errors);
  return errors;
}

// Adds the errors of one request of set 0.
void DecodeWorkload::compare(std::int64_t request, const std::vector<std::byte>& before,
                             Errors* errors) const {
  const DecodeProblem& p = problem_;
  const Set& set = sets_[0];
  const std::vector<std::byte> after =
      pool_.download(idx(set_slots_[0][idx(request)]) * slot_bytes(), slot_bytes());
  const std::size_t matrix = idx(p.key_dim) * idx(p.value_dim);
  const std::int64_t heads = p.heads();
  for (std::int64_t h = 0; h < heads; ++h) {
    gdn::DecodeRefHead<double> head{.key_dim = p.key_dim,
                                    .value_dim = p.value_dim,
                                    .gate_mode = p.gate_mode,
                                    .beta_mode = p.beta_mode,
                                    .use_qk_l2norm = p.use_qk_l2norm,
                                    .scale = 1 / std::sqrt(static_cast<double>(p.key_dim))};
    const std::int64_t key_head = request * p.k_heads + h / (heads / p.k_heads);
    head.q = values(p.dtype, set.q, key_head * p.key_dim, p.key_dim);
    head.k = values(p.dtype, set.k, key_head * p.key_dim, p.key_dim);
    head.v = values(p.dtype, set.v, (request * heads + h) * p.value_dim, p.value_dim);
    head.gate = values(p.gate_dtype, set.a, request * heads + h, 1)[0];
    head.beta = values(p.beta_dtype, set.b, request * heads + h, 1)[0];
    head.a_log = values(p.a_log_dtype, a_log_, h, 1)[0];
    head.dt_bias = values(p.dt_bias_dtype, dt_bias_, h, 1)[0];
    const auto stored = [&](const std::vector<std::byte>& bytes, std::size_t i) {
      // Element i of [key_dim][value_dim] in the pool's layout.
      const std::size_t row = i / idx(p.value_dim), column = i % idx(p.value_dim);
      const std::size_t at =
          p.state_layout == gdn::StateLayout::kKV ? i : column * idx(p.key_dim) + row;
      return test::load(p.state_dtype,
                        bytes.data() + (idx(h) * matrix + at) * idx(size_of(p.state_dtype)));
    };
    std::vector<double> state(matrix), o(idx(p.value_dim));
    for (std::size_t i = 0; i < matrix; ++i) state[i] = stored(before, i);
    gdn_decode_ref(head, state.data(), o.data());
    const std::vector<double> actual =
        values(p.output_dtype, set.o, (request * heads + h) * p.value_dim, p.value_dim);
    for (std::size_t j = 0; j < o.size(); ++j) errors->o.add(actual[j], o[j]);
    for (std::size_t i = 0; i < matrix; ++i) errors->state.add(stored(after, i), state[i]);
  }
}

}  // namespace cubinery::bench
