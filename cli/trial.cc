#include "cli/trial.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "cubinery/gdn.h"
#include "runtime/jit/device.h"

namespace cubinery {
namespace {

// One head, one request.  All numbers are small integers and there is no decay and no
// normalisation: every sum is exact in fp32, whatever its order, so that the GPU must agree to the
// last bit.
constexpr std::size_t kKeyDim = 128;
constexpr std::size_t kValueDim = 128;

struct Numbers {
  std::vector<float> q, k, v, state, o;

  Numbers() : q(kKeyDim), k(kKeyDim), v(kValueDim), state(kKeyDim * kValueDim), o(kValueDim, -1) {
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 3) - 1;
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i % 5) - 2;
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(i % 4) - 1;
  }

  // u = v - S^T k;  S <- S + k u^T;  o = S^T q, with S stored as [value_dim, key_dim].
  void step() {
    for (std::size_t j = 0; j < v.size(); ++j) {
      float* row = &state[j * kKeyDim];
      float u = v[j];
      for (std::size_t i = 0; i < k.size(); ++i) u -= row[i] * k[i];
      o[j] = 0;
      for (std::size_t i = 0; i < k.size(); ++i) {
        row[i] += k[i] * u;
        o[j] += row[i] * q[i];
      }
    }
  }
};

// Device memory that holds a copy of floats.
class Buffer {
 public:
  explicit Buffer(const Driver& driver) : driver_(driver) {}
  ~Buffer() {
    if (pointer_ != 0) driver_.cuMemFree(pointer_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Status upload(const std::vector<float>& values) {
    const std::size_t bytes = values.size() * sizeof(float);
    CUBINERY_RETURN_IF_ERROR(driver_.check(driver_.cuMemAlloc(&pointer_, bytes), "cuMemAlloc"));
    return driver_.check(driver_.cuMemcpyHtoD(pointer_, values.data(), bytes), "cuMemcpyHtoD");
  }
  Status download(std::vector<float>* values) const {
    return driver_.check(
        driver_.cuMemcpyDtoH(values->data(), pointer_, values->size() * sizeof(float)),
        "cuMemcpyDtoH");
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's pointers are integers
  void* data() const { return reinterpret_cast<void*>(pointer_); }

 private:
  const Driver& driver_;
  CUdeviceptr pointer_ = 0;
};

Status compare(const char* name, const std::vector<float>& actual,
               const std::vector<float>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    return Status(Code::kDriver, fmt::format("wrong numbers: {}[{}] is {}, must be {}", name, i,
                                             actual[i], expected[i]));
  }
  return {};
}

// Enqueues the step, waits for it, and fetches what it wrote into `numbers`.
Status run(const gdn::Decode& decode, const Driver& driver, Numbers* numbers) {
  Buffer q(driver), k(driver), v(driver), state(driver), o(driver);
  CUBINERY_RETURN_IF_ERROR(q.upload(numbers->q));
  CUBINERY_RETURN_IF_ERROR(k.upload(numbers->k));
  CUBINERY_RETURN_IF_ERROR(v.upload(numbers->v));
  CUBINERY_RETURN_IF_ERROR(state.upload(numbers->state));
  CUBINERY_RETURN_IF_ERROR(o.upload(numbers->o));
  gdn::DecodeArgs args;
  args.q = Tensor::contiguous(q.data(), DType::kF32, {1, 1, kKeyDim});
  args.k = Tensor::contiguous(k.data(), DType::kF32, {1, 1, kKeyDim});
  args.v = Tensor::contiguous(v.data(), DType::kF32, {1, 1, kValueDim});
  args.o = Tensor::contiguous(o.data(), DType::kF32, {1, 1, kValueDim});
  args.state = Tensor::contiguous(state.data(), DType::kF32, {1, 1, kValueDim, kKeyDim});
  args.scale = 1.0f;
  CUBINERY_RETURN_IF_ERROR(decode.launch(nullptr, args));
  CUBINERY_RETURN_IF_ERROR(driver.check(driver.cuCtxSynchronize(), "cuCtxSynchronize"));
  CUBINERY_RETURN_IF_ERROR(o.download(&numbers->o));
  return state.download(&numbers->state);
}

}  // namespace

Status trial_launch(const Options& options) {
  const Result<Context> context = Context::create(options);
  if (!context) return context.error().clone();
  const Result<gdn::Decode> decode = context->prepare(gdn::DecodeProblem{
      .q_heads = 1,
      .k_heads = 1,
      .v_heads = 1,
      .key_dim = kKeyDim,
      .value_dim = kValueDim,
      .dtype = DType::kF32,
      .output_dtype = DType::kF32,
      .state_dtype = DType::kF32,
      .state_layout = gdn::StateLayout::kVK,
      .gate_mode = gdn::GateMode::kNone,
      .beta_mode = gdn::BetaMode::kOne,
  });
  if (!decode) return decode.error().clone();

  Result<std::shared_ptr<const Driver>> driver = Driver::open(options.driver_path);
  if (!driver) return std::move(driver).error();
  const Result<std::shared_ptr<const Device>> device = Device::open(*driver, options.device);
  if (!device) return device.error().clone();
  const CurrentContext current(**driver, (*device)->context());
  CUBINERY_RETURN_IF_ERROR(current.status().clone());

  Numbers expected;
  expected.step();
  Numbers actual;
  CUBINERY_RETURN_IF_ERROR(run(*decode, **driver, &actual));
  CUBINERY_RETURN_IF_ERROR(compare("o", actual.o, expected.o));
  return compare("state", actual.state, expected.state);
}

}  // namespace cubinery
