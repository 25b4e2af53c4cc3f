// GDN decode with states in fp8: what every byte is read as and every number stored as, and steps
// against a reference in double that rounds the state as decode does.  The tests of everything else
// (layouts, pools, the norm) take fp8 as one more dtype.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/rounding.h"
#include "runtime/gdn/decode/operator.h"
#include "tests/gpu/decode_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::gdn_decode_fp8_test {
namespace {

using gdn::BetaMode;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::StateLayout;

std::vector<DType> fp8_dtypes() {
  std::vector<DType> dtypes = decode_state_dtypes();
  std::erase_if(dtypes, [](DType dtype) { return !is_fp8(dtype); });
  if (dtypes.empty()) skip_test("no fp8 on this device");
  return dtypes;
}

// S <- S + k v^T;  o = S^T q, by one head.
DecodeProblem plain_problem(DType state_dtype, StateLayout layout) {
  DecodeProblem problem{.key_dim = 16, .value_dim = 256};
  problem.heads = {.q = 1, .k = 1, .v = 1};
  problem.dtype = problem.output_dtype = DType::kF32;
  problem.inputs.gate_mode = GateMode::kNone;
  problem.inputs.beta_mode = BetaMode::kOne;
  problem.states.dtype = state_dtype;
  problem.states.layout = layout;
  return problem;
}

void set_row(DecodeCase* one, TensorId tensor, std::int64_t n, const std::vector<float>& values) {
  std::byte* to = one->at(one->row_at(tensor, n, 0, 0));
  for (std::size_t i = 0; i < values.size(); ++i) store(DType::kF32, to + 4 * i, values[i]);
}

// All numbers of the format, what lies between two of them and beside that, and what is beyond.
std::vector<float> numbers_to_round(DType dtype) {
  std::vector<float> numbers;
  const Fp8Format& format = fp8_format(dtype);
  for (int byte = 0; byte < 0x80; ++byte) {
    const float x = float_from_fp8(format, static_cast<std::uint8_t>(byte));
    const float next = float_from_fp8(format, static_cast<std::uint8_t>(byte + 1));
    if (!std::isfinite(x)) continue;
    // Above the largest there is no next one, but there would be.
    const float middle = std::isfinite(next) ? (x + next) / 2 : x * 1.0625f;
    numbers.insert(numbers.end(),
                   {x, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)});
  }
  for (const float beyond : {464.0f, 465.0f, 480.0f, 61440.0f, 65536.0f, 1e30f,
                             std::numeric_limits<float>::infinity(), 1e-30f, 0x1p-140f}) {
    numbers.push_back(beyond);
  }
  numbers.push_back(std::numeric_limits<float>::quiet_NaN());
  const std::size_t count = numbers.size();
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(-numbers[i]);
  return numbers;
}

TEST_CASE("GdnDecodeFp8.StoresEveryNumberAsTheReferenceRoundsIt", "[gpu]") {
  for (const DType dtype : fp8_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      DecodeProblem problem = plain_problem(dtype, layout);
      problem.states.has_initial = false;
      std::vector<float> numbers = numbers_to_round(dtype);
      const std::int64_t batch = static_cast<std::int64_t>(numbers.size() + 255) / 256;
      numbers.resize(idx(256 * batch));
      DecodeCase one(problem, batch, {.seed = seed()});
      for (std::int64_t n = 0; n < batch; ++n) {
        set_row(&one, TensorId::kK, n, std::vector<float>(16, 1.0f));
        set_row(&one, TensorId::kV, n,
                {numbers.begin() + 256 * n, numbers.begin() + 256 * (n + 1)});
      }
      const GdnMemory after = run(one, prepare(problem));
      for (std::int64_t n = 0; n < batch; ++n) {
        const auto state = one.matrix_values<float>(after, TensorId::kState, n, 0);
        for (std::size_t e = 0; e < state.size(); ++e) {
          const float given = numbers[idx(256 * n) + e % 256];
          const float expected = rounded(dtype, given);
          const bool same = state[e] == expected || (std::isnan(state[e]) && std::isnan(expected));
          if (!same) {
            FAIL_CHECK(given << " is stored as " << state[e] << ", not " << expected << "; problem "
                             << problem.to_json());
          }
        }
      }
    }
  }
}

// Column j of the state is byte j.  With q of 1/16 its output is that number, and with k = 0 the
// state stays as it was, but for what is not finite.
TEST_CASE("GdnDecodeFp8.ReadsEveryByte", "[gpu]") {
  for (const DType dtype : fp8_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      const DecodeProblem problem = plain_problem(dtype, layout);
      DecodeCase one(problem, 1, {.seed = seed(), .scale = 1.0f});
      set_row(&one, TensorId::kK, 0, std::vector<float>(16, 0.0f));
      set_row(&one, TensorId::kQ, 0, std::vector<float>(16, 1.0f / 16));
      std::byte* const matrix = one.at(one.matrix_at(TensorId::kState, 0, 0));
      for (std::size_t j = 0; j < 256; ++j) {
        for (std::size_t i = 0; i < 16; ++i) {
          matrix[layout == StateLayout::kKV ? i * 256 + j : j * 16 + i] = std::byte(j);
        }
      }
      const GdnMemory after = run(one, prepare(problem));
      const auto o = one.row_values(after, TensorId::kO, 0, 0, 0, 256);
      const auto state = one.matrix_values<float>(after, TensorId::kState, 0, 0);
      for (std::size_t j = 0; j < 256; ++j) {
        const float expected = float_from_fp8(fp8_format(dtype), static_cast<std::uint8_t>(j));
        INFO("byte " << j << ", problem " << problem.to_json());
        if (!std::isfinite(expected)) {
          CHECK_FALSE(std::isfinite(o[j]));
          CHECK((std::isnan(state[j]) || std::abs(state[j]) == fp8_format(dtype).largest));
          continue;
        }
        CHECK(o[j] == expected);
        for (std::size_t i = 0; i < 16; ++i) CHECK(state[i * 256 + j] == expected);
      }
    }
  }
}

// How a step's results compare with the reference from the state in front of it.
struct StepErrors {
  Deviation outputs{};
  std::int64_t elements = 0, others = 0;  // of states; others: stored as a neighbour
};

// A number may lie so close to the middle of two that fp32 rounds it to the other one.
void compare_state(const std::vector<double>& actual, const std::vector<double>& expected,
                   DType dtype, StepErrors* errors) {
  for (std::size_t e = 0; e < expected.size(); ++e) {
    const auto exact = static_cast<float>(expected[e]);
    ++errors->elements;
    if (actual[e] == rounded(dtype, exact)) continue;
    ++errors->others;
    const float near = 1e-5f * (std::abs(exact) + 1);
    if (actual[e] == rounded(dtype, exact + near) || actual[e] == rounded(dtype, exact - near)) {
      continue;
    }
    FAIL_CHECK(expected[e] << " is stored as " << actual[e]);
  }
}

// `states` has the states, before and after step `step`, whose other tensors are those of `c`.
void compare_step(const DecodeCase& c, const GdnMemory& results, const DecodeCase& states,
                  const GdnMemory& before, const GdnMemory& after, int step, StepErrors* errors) {
  const DecodeProblem& problem = c.problem();
  for (std::int64_t n = 0; n < c.sequences(); ++n) {
    for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
      INFO("step " << step << ", request " << n << ", head " << h << ", seed " << seed()
                   << ", problem " << problem.to_json());
      auto state = states.matrix_values<double>(before, TensorId::kState, n, h);
      auto naive = states.matrix_values<float>(before, TensorId::kState, n, h);
      std::vector<double> o(idx(problem.value_dim));
      std::vector<float> naive_o(o.size());
      gdn_prefill_ref(c.head<double>(n, h, 0, 1), state.data(), o.data());
      gdn_prefill_ref(c.head<float>(n, h, 0, 1), naive.data(), naive_o.data());
      const auto actual = c.row_values(results, TensorId::kO, n, 0, h, problem.value_dim);
      for (std::size_t j = 0; j < o.size(); ++j) {
        errors->outputs.add(actual[j], naive_o[j], o[j],
                            {n, h, step, static_cast<std::int64_t>(j), 0});
      }
      compare_state(states.matrix_values<double>(after, TensorId::kState, n, h), state,
                    problem.states.dtype, errors);
    }
  }
}

// Each step goes on from the state that the one before wrote, so that errors do not add up.
void run_steps(const DecodeProblem& problem, GateDistribution gates) {
  constexpr int kSteps = 64;
  constexpr std::int64_t kBatch = 3;
  const DecodeSteps steps(problem, kBatch, gates);
  const DecodeCase& first = steps.first();
  GdnMemory before = first.memory();
  StepErrors errors;
  for (int step = 0; step < kSteps; ++step) {
    const DecodeCase c = steps.run(step);
    GdnMemory after = first.download();
    compare_step(c, c.download(), first, before, after, step, &errors);
    before = std::move(after);
  }
  INFO("problem " << problem.to_json() << ", seed " << seed() << "\n"
                  << text(errors.outputs, "o (token: step)"));
  CHECK(errors.outputs.ok());
  CHECK(errors.others * 1000 <= errors.elements);
}

TEST_CASE("GdnDecodeFp8.ManySteps", "[gpu][slow]") {
  for (const DType dtype : fp8_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      for (const GateDistribution gates :
           {GateDistribution::kInit, GateDistribution::kUndecayed, GateDistribution::kQwen}) {
        DecodeProblem problem = small_problem();
        problem.states.layout = layout;
        problem.states.dtype = dtype;
        problem.output_dtype = DType::kF32;
        problem.inputs.use_qk_l2norm = true;
        run_steps(problem, gates);
      }
    }
  }
}

// A cover of pairs of the problem's and the tuned fields.
TEST_CASE("GdnDecodeFp8.EveryConfigurationIsRight", "[gpu][big][sanitize]") {
  std::vector<DecodeProblem> problems;
  for (const DType dtype : fp8_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      DecodeProblem& problem = problems.emplace_back(small_problem());
      problem.key_dim = dtype == DType::kF8E4M3 ? 64 : 48;  // 48: rows that only pairs divide
      problem.value_dim = 32;
      problem.states.layout = layout;
      problem.states.dtype = dtype;
    }
  }
  const auto all = [](const DecodeProblem&, const Configuration&) { return true; };
  for (const auto& [problem, configuration] : cover_configurations(problems, 0, all)) {
    run_good(DecodeCase(problem, 5, {.seed = seed()}), configuration);
  }
}

TEST_CASE("GdnDecodeFp8.EveryDim", "[gpu][big][slow]") {
  std::vector<DecodeProblem> problems;
  for (const DType dtype : fp8_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      for (int dim = 16; dim <= 256; dim += 16) {
        for (const bool is_key : {false, true}) {
          DecodeProblem& problem = problems.emplace_back(small_problem());
          problem.key_dim = is_key ? dim : 128;
          problem.value_dim = is_key ? 128 : dim;
          problem.states.layout = layout;
          problem.states.dtype = dtype;
        }
      }
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeFp8.EveryGateDistribution", "[gpu]") {
  for (const GateDistribution gates : kGateDistributions) {
    std::vector<DecodeProblem> problems;
    for (const DType dtype : fp8_dtypes()) {
      for (const GateMode mode : {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
        DecodeProblem& problem = problems.emplace_back(small_problem());
        problem.inputs.gate_mode = mode;
        problem.states.dtype = dtype;
      }
    }
    CaseOptions options;
    options.gates = gates;
    run_both_kernels(problems, options);
  }
}

TEST_CASE("GdnDecodeFp8.BitsDoNotDependOnTheBatch", "[gpu][big]") {
  for (const DType dtype : fp8_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      DecodeProblem problem = small_problem();
      problem.states.layout = layout;
      problem.states.dtype = dtype;
      expect_bits_without_the_batch(problem);
    }
  }
}

}  // namespace
}  // namespace cubinery::test::gdn_decode_fp8_test
