#include "benchmarks/launch_check.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <type_traits>
#include <vector>

#include "harness/case.h"
#include "harness/reference.h"
#include "harness/rounding.h"
#include "harness/workload.h"

namespace cubinery::bench {
namespace {

constexpr std::int64_t kComparedRequests = 4;  // more would only take time of the host
constexpr std::int64_t kComparedTokens = 4096;

// A head of a sequence, and what the reference makes of it.
struct Part {
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::vector<double> o{};      // [tokens][value_dim]
  std::vector<double> state{};  // [key_dim][value_dim]
};

// `count` elements of a tensor that repeats `pattern`, from element `first` on.
std::vector<double> repeated(DType dtype, const std::vector<std::byte>& pattern, std::int64_t first,
                             std::int64_t count) {
  const std::size_t size = idx(size_of(dtype));
  std::vector<double> values;
  for (std::int64_t i = first; i < first + count; ++i) {
    values.push_back(load(dtype, pattern.data() + idx(i) * size % pattern.size()));
  }
  return values;
}

// `count` elements of a tensor of set 0, from element `first` on.
std::vector<double> values(const GdnOperands& operands, TensorId tensor, std::int64_t first,
                           std::int64_t count) {
  const DType dtype = tensor_of(operands.args(0), tensor).dtype;
  const std::size_t size = idx(size_of(dtype));
  std::vector<std::byte> bytes(idx(count) * size);
  operands.download(tensor, 0, idx(first) * size, bytes).value();
  return from_bytes(dtype, bytes);
}

// A stored matrix as [key_dim][value_dim].
std::vector<double> by_keys(const GdnProblem& p, std::vector<double> stored) {
  if (p.states.layout == gdn::StateLayout::kKV) return stored;
  std::vector<double> matrix(stored.size());
  for (std::size_t e = 0; e < stored.size(); ++e) {
    matrix[e % idx(p.key_dim) * idx(p.value_dim) + e / idx(p.key_dim)] = stored[e];
  }
  return matrix;
}

class LaunchCheck {
 public:
  LaunchCheck(const GdnOperands& operands, std::vector<Part> parts)
      : operands_(operands), p_(operands.problem()), parts_(std::move(parts)) {
    on_all_processors(parts_.size(), [&](std::size_t i) { compute(&parts_[i]); });
  }

  template <class Operator>
  Errors errors(const Operator& prepared, const Gpu& gpu) const {
    const DeviceStream stream = test::make_stream(gpu);
    launch(prepared, stream.get(), operands_, 0).value();
    stream.synchronize().value();
    Errors errors;
    for (const Part& part : parts_) {
      if constexpr (!std::is_same_v<Operator, gdn::Commit>) compare_outputs(part, &errors);
      compare_state(part, &errors);
    }
    return errors;
  }

 private:
  std::int64_t length(const Part& part) const {
    return operands_.options().lengths[idx(part.sequence)];
  }
  std::int64_t tokens(const Part& part) const { return std::min(length(part), kComparedTokens); }
  // In a launch, of the sequence.
  std::int64_t first_token(const Part& part) const {
    const auto& lengths = operands_.options().lengths;
    return std::accumulate(lengths.begin(), lengths.begin() + part.sequence, std::int64_t{0});
  }
  std::int64_t matrix_elements() const { return std::int64_t{p_.key_dim} * p_.value_dim; }
  std::int64_t first_state_element(const Part& part) const {
    const std::int64_t slot = operands_.slots(0)[idx(part.sequence)];
    return (slot * p_.heads.count() + part.head) * matrix_elements();
  }

  // All columns of a channel's state of the convolution in front.
  std::vector<double> conv_inputs(const Part& part, const Tensor& state, std::int64_t c) const {
    const std::int64_t row = operands_.slots(0)[idx(part.sequence)] * state.strides[0];
    std::vector<double> inputs;
    for (std::int64_t i = 0; i < state.shape[2]; ++i) {
      const std::int64_t at = row + c * state.strides[1] + i * state.strides[2];
      inputs.push_back(
          repeated(state.dtype, operands_.patterns().of(TensorId::kConvState), at, 1)[0]);
    }
    return inputs;
  }

  void compute(Part* part) const {
    const GdnPatterns& patterns = operands_.patterns();
    const GdnArgs tensors = operands_.args(0);
    const std::int64_t first = first_token(*part), last = first + tokens(*part);
    const auto read = [&](TensorId tensor, std::int64_t t, std::int64_t h, int width) {
      const Tensor& x = tensor_of(tensors, tensor);
      if (tensor == TensorId::kConvState) return conv_inputs(*part, x, h);
      const std::int64_t heads = x.rank == 1 ? 0 : x.shape[p_.varlen ? 1 : 2];
      return repeated(x.dtype, patterns.of(tensor), (t * heads + h) * width, width);
    };
    const auto head =
        reference_head<double>(p_, operands_.options().scale, part->head, first, last, read);
    part->state.resize(idx(matrix_elements()));
    if (p_.states.has_initial) {
      part->state = by_keys(p_, repeated(p_.states.dtype, patterns.of(TensorId::kState),
                                         first_state_element(*part), matrix_elements()));
    }
    part->o.resize(head.v.size());
    gdn::gdn_prefill_ref(head, part->state.data(), part->o.data());
    norm_outputs(p_, {}, part->head, first, last, read, part->o.data());
  }

  void compare_outputs(const Part& part, Errors* errors) const {
    const std::int64_t heads = p_.heads.count(), dim = p_.value_dim;
    const std::vector<double> o = values(operands_, TensorId::kO, first_token(part) * heads * dim,
                                         tokens(part) * heads * dim);
    for (std::int64_t t = 0; t < tokens(part); ++t) {
      const double* const row = o.data() + (t * heads + part.head) * dim;
      for (std::int64_t j = 0; j < dim; ++j) errors->o.add(row[j], part.o[idx(t * dim + j)]);
    }
  }

  void compare_state(const Part& part, Errors* errors) const {
    if (tokens(part) != length(part) || !p_.states.store) return;
    const bool apart = operands_.args(0).state_out.present();
    const std::vector<double> state =
        by_keys(p_, values(operands_, apart ? TensorId::kStateOut : TensorId::kState,
                           first_state_element(part), matrix_elements()));
    for (std::size_t e = 0; e < state.size(); ++e) errors->state.add(state[e], part.state[e]);
  }

  const GdnOperands& operands_;
  const GdnProblem& p_;
  std::vector<Part> parts_;
};

// All heads of a few requests.
std::vector<Part> first_requests(const GdnOperands& operands) {
  std::vector<Part> parts;
  const std::int64_t heads = operands.problem().heads.count();
  const std::int64_t compared = std::min(operands.size().sequences, kComparedRequests);
  for (std::int64_t unit = 0; unit < compared * heads; ++unit) {
    parts.push_back({.sequence = unit / heads, .head = unit % heads});
  }
  return parts;
}

// Two heads, the one that forgets most slowly and the one that does fastest, of two sequences.
std::vector<Part> extreme_parts(const GdnOperands& operands) {
  std::vector<Part> parts;
  const std::vector<std::int64_t>& lengths = operands.options().lengths;
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  const std::vector<double>& decay = operands.patterns().decay();
  const auto [slowest, fastest] = std::minmax_element(decay.begin(), decay.end());
  for (const auto sequence : std::set{shortest, longest}) {
    for (const auto decays : std::set{slowest, fastest}) {
      parts.push_back({.sequence = sequence - lengths.begin(), .head = decays - decay.begin()});
    }
  }
  return parts;
}

}  // namespace

template <class Operator>
Errors launch_errors(const Operator& prepared, const Gpu& gpu, const GdnOperands& operands) {
  constexpr bool kPrefill = std::is_same_v<Operator, gdn::Prefill>;
  return LaunchCheck(operands, kPrefill ? extreme_parts(operands) : first_requests(operands))
      .errors(prepared, gpu);
}

template Errors launch_errors(const gdn::Decode&, const Gpu&, const GdnOperands&);
template Errors launch_errors(const gdn::Verify&, const Gpu&, const GdnOperands&);
template Errors launch_errors(const gdn::Commit&, const Gpu&, const GdnOperands&);
template Errors launch_errors(const gdn::Prefill&, const Gpu&, const GdnOperands&);

}  // namespace cubinery::bench
