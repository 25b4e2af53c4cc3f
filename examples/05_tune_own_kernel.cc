// The kernel of example 02, tuned for the GPU that is here: its field table gives the space, the
// classes below launch and check; the library searches, measures, remembers and chooses.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "cubinery/tuning.h"
#include "rms_norm/fields.h"
#include "rms_norm/rms_norm_ref.h"

namespace {

using namespace cubinery;

constexpr int kCols = 768;
const RmsNormKey kKey{.dtype = DType::kF32, .cols = kCols};

struct Variant {
  RmsNormKey key;
  std::optional<Kernel> kernel{};  // once it is prepared
};

// Sets of x and y [rows, cols] on the device, and one weight.
class Rows : public Workload {
 public:
  Rows(const std::vector<Variant>& variants, std::int64_t rows, std::int64_t sets)
      : variants_(variants), rows_(rows), sets_(sets) {}
  ~Rows() override { cudaFree(data_); }
  Status allocate() {
    if (cudaMalloc(&data_, (2 * sets_ * rows_ + 1) * kCols * sizeof(float)) == cudaSuccess)
      return {};
    return Status(Code::kDriver, "out of memory");
  }
  int sets() const override { return static_cast<int>(sets_); }
  std::int64_t bytes() const override { return 2 * rows_ * kCols * sizeof(float); }
  Status launch(std::size_t i, Stream stream, int set) override {
    const auto [key, kernel] = variants_[i];
    const auto blocks = static_cast<unsigned>((rows_ + key.warps - 1) / key.warps);
    return kernel->launch(stream, {.grid = {blocks}},
                          RmsNormParams{x(set), weight(), y(set), static_cast<int>(rows_)});
  }
  float* weight() const { return static_cast<float*>(data_); }
  float* x(int set) const { return weight() + (1 + 2 * set * rows_) * kCols; }
  float* y(int set) const { return x(set) + rows_ * kCols; }

 private:
  const std::vector<Variant>& variants_;
  const std::int64_t rows_;
  const std::int64_t sets_;
  void* data_ = nullptr;
};

// The largest relative error; infinite where y is not a number.
double worst_error(const std::vector<float>& y, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t n = 0; n < y.size(); ++n) {
    const double error = std::abs(y[n] - expected[n]) / (std::abs(expected[n]) + 1e-30);
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

class RmsNormTuning : public Tunable {
 public:
  explicit RmsNormTuning(const Context& context) : context_(context), space_(tuning_space(kKey)) {
    for_each_candidate(kKey, [&](const RmsNormKey& key) { variants_.push_back({key}); });
  }

  const TuningSpace& space() const override { return space_; }
  std::size_t default_configuration(const Shape&) const override {
    return index_of(space_, tuned_values(kKey));
  }
  Status prepare(std::size_t i) override {
    Result<Kernel> kernel = context_.get(variants_[i].key);
    if (!kernel) return std::move(kernel).error();
    variants_[i].kernel = *std::move(kernel);
    return {};
  }

  // An odd number of rows, of several sizes: the largest would overflow half precision, the
  // smallest vanishes beside the epsilon.
  Result<Check> check(std::size_t i) override {
    constexpr int kRows = 1001;
    Rows rows(variants_, kRows, 1);
    CUBINERY_RETURN_IF_ERROR(rows.allocate());
    std::vector<float> x(kRows * kCols), weight(kCols), y(x.size());
    for (int c = 0; c < kCols; ++c) weight[c] = 1.5f + std::cos(static_cast<float>(c));
    // A sum of positive numbers in fp32 loses half a unit for each; the rest is five operations.
    Check check{.error = 0, .limit = (kCols / 32.0 + 5 + 5) * 6e-8};
    for (const float size : {1e-5f, 1.0f, 1e5f}) {
      for (std::size_t n = 0; n < x.size(); ++n)
        x[n] = size * std::sin(1.0f + static_cast<float>(n));
      cudaMemcpy(rows.x(0), x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
      cudaMemcpy(rows.weight(), weight.data(), kCols * sizeof(float), cudaMemcpyHostToDevice);
      cudaMemset(rows.y(0), 0xff, y.size() * sizeof(float));  // NaN
      CUBINERY_RETURN_IF_ERROR(rows.launch(i, nullptr, 0));
      if (cudaMemcpy(y.data(), rows.y(0), y.size() * sizeof(float), cudaMemcpyDeviceToHost) !=
          cudaSuccess) {
        return Status(Code::kDriver, "rms_norm failed");
      }
      check.error = std::max(check.error, worst_error(y, rms_norm_ref(x, weight)));
    }
    return check;
  }

  Result<std::unique_ptr<Workload>> workload(const Shape& shape) override {
    const Result<GpuIdentity> gpu = gpu_identity(context_);
    if (!gpu) return gpu.error().clone();
    const std::int64_t rows = shape.at(0).value;
    const std::int64_t set_bytes = 2 * rows * kCols * static_cast<std::int64_t>(sizeof(float));
    auto made = std::make_unique<Rows>(
        variants_, rows, std::max<std::int64_t>(3, 4 * gpu->l2_bytes / set_bytes + 1));
    CUBINERY_RETURN_IF_ERROR(made->allocate());
    return std::unique_ptr<Workload>(std::move(made));
  }

 private:
  Context context_;
  TuningSpace space_;
  std::vector<Variant> variants_;  // in the order of the configurations
};

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("no GPU"), 77;

  Options options = Options::from_env().value();
  options.template_dirs.emplace_back(RMS_NORM_TEMPLATE_DIR);
  const Context context = Context::create(options).value();
  RmsNormTuning tunable(context);
  const TuneSummary summary = tune(context, tunable, {{{"rows", 1024}}, {{"rows", 65536}}},
                                   {.budget = std::chrono::minutes(1)})
                                  .value();
  std::fputs(tuning_report(summary.directory, {.op = "rms_norm"}).value().c_str(), stdout);

  const Choice choice =
      choose(context, tunable.space(), {{"rows", 1500}}, tunable.default_configuration({}));
  const Configuration& chosen = tunable.space().configurations[choice.index];
  std::printf("for 1500 rows: %s (%s: %s)\n", to_text(chosen.values).c_str(),
              to_string(choice.rung), choice.why.c_str());
  return !summary.stopped && choice.rung == Rung::kNearestShape ? 0 : 1;
}
