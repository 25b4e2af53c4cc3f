// GDN prefill and how its operands lie.
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tests/gpu/cases.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::GateMode;
using gdn::PrefillArgs;
using gdn::PrefillProblem;
using gdn::TokenLayout;

constexpr Placement kPlacements[] = {Placement::kContiguous, Placement::kPackedRows,
                                     Placement::kTransposedHeads, Placement::kRank4,
                                     Placement::kUnaligned};

PrefillProblem computed_gates(bool varlen, TokenLayout layout, DType dtype) {
  PrefillProblem problem = varlen ? small_varlen() : small_prefill();
  problem.token_layout = layout;
  problem.dtype = problem.output_dtype = dtype;
  problem.inputs.gate_dtype = problem.inputs.beta_dtype = DType::kBF16;
  problem.inputs.gate_mode = GateMode::kComputed;
  return problem;
}

TEST_CASE("GdnPrefill.TakesOperandsAsTheyLie", "[gpu][prefill][sanitize]") {
  for (const Placement placement : kPlacements) {
    for (const TokenLayout layout : {TokenLayout::kBTHD, TokenLayout::kBHTD}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        CaseOptions options;
        options.placement = placement;
        run_case(computed_gates(false, layout, dtype), uniform(3, 77), options);
        run_case(computed_gates(true, layout, dtype),
                 {.lengths = {77, 0, 16, 130}, .lead = 3, .tail = 9}, options);
      }
    }
  }
}

// Head dimensions whose rows are no multiple of the widest copy, without alignment.
TEST_CASE("GdnPrefill.UnalignedRowsOfEveryWidth", "[gpu][prefill][slow][sanitize]") {
  std::vector<PrefillProblem> problems;
  for (const auto& [key_dim, value_dim] :
       {std::pair(16, 48), std::pair(48, 16), std::pair(80, 112), std::pair(256, 96)}) {
    PrefillProblem& problem = problems.emplace_back(small_prefill());
    problem.key_dim = key_dim;
    problem.value_dim = value_dim;
    problem.dtype = key_dim == 48 ? DType::kF16 : DType::kBF16;
  }
  CaseOptions options;
  options.placement = Placement::kUnaligned;
  run_cases(problems, uniform(2, 99), options);
}

// One of q, k and v is aligned and the others are not.
TEST_CASE("GdnPrefill.MixedAlignment", "[gpu][prefill]") {
  const CaseShape shape = uniform(2, 99);
  const gdn::Prefill prefill = prepare(small_prefill(), {size_of(shape)});
  CaseOptions options{.seed = seed()};
  const PrefillCase aligned(small_prefill(), shape, options);
  options.placement = Placement::kUnaligned;
  const PrefillCase odd(small_prefill(), shape, options);  // the same values
  const GdnMemory expected = run(aligned, prefill);
  for (int mask = 1; mask < 16; ++mask) {
    gdn::PrefillArgs args = aligned.args();
    if ((mask & 1) != 0) args.q = odd.args().q;
    if ((mask & 2) != 0) args.k = odd.args().k;
    if ((mask & 4) != 0) args.v = odd.args().v;
    if ((mask & 8) != 0) args.g = odd.args().g;
    INFO("unaligned: " << mask << " (1 q, 2 k, 4 v, 8 g), seed " << seed());
    CHECK(first_difference(run(aligned, prefill, args), expected) == "");
  }
}

// Gaps between heads, slots and rows of states and checkpoints.
TEST_CASE("GdnPrefill.StatesWithGaps", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    for (const bool varlen : {false, true}) {
      PrefillProblem& problem = problems.emplace_back(small_prefill());
      problem.varlen = varlen;
      problem.states.dtype = state_dtype;
      problem.checkpoints = Checkpoints::kBefore;
    }
  }
  CaseOptions options;
  options.slot_gap = 24;  // whole 16-byte units, but no power of two
  options.head_gap = 8;
  run_cases(problems, uniform(3, 130), options);
  options.separate_out = true;
  options.out_slot_gap = 40;
  run_cases(problems, uniform(3, 130), options);
}

// The rows of a tensor at `at`, `stride` elements from token to token.
void scatter(const PrefillCase& c, TensorId tensor, std::int64_t width, std::int64_t stride,
             std::int64_t at, const DeviceBuffer& far) {
  const std::size_t size = idx(size_of(tensor_of(c.args(), tensor).dtype));
  for (std::int64_t t = 0; t < c.length(0); ++t) {
    const GdnCase::Place row = c.row_at(tensor, 0, t, 0);
    far.upload(std::span(c.memory()[row.piece]).subspan(row.byte, idx(width) * size),
               idx(t * stride + at) * size);
  }
}

Tensor far_view(Tensor view, const DeviceBuffer& far, std::int64_t stride, std::int64_t at) {
  view.data = static_cast<std::byte*>(far.data()) + at * size_of(view.dtype);
  view.strides[1] = stride;
  return view;
}

// Rows that lie so far apart that their element and byte offsets need more than 32 bits must give
// what close ones give, bit for bit.
TEST_CASE("GdnPrefill.TokensBeyond32BitOffsets", "[gpu][prefill][big][slow]") {
  constexpr std::int64_t kTokens = 4160, kStride = 1 << 20;  // 2^32 + 2^26 elements
  PrefillProblem problem = small_prefill();
  const std::int64_t qk_width = problem.heads.q * problem.key_dim;
  const std::int64_t v_width = problem.heads.v * problem.value_dim;
  const auto span = static_cast<std::size_t>((kTokens - 1) * kStride + 2 * qk_width + v_width);
  if (gpu().free_bytes() < 8 * span + (std::size_t{2} << 30)) {
    return skip_test("not enough device memory for tensors of tokens beyond 2^32 elements");
  }
  const PrefillCase c(problem, uniform(1, kTokens), {.seed = seed()});
  const gdn::Prefill prefill = prepare(problem, {c.size(c.args())});
  const GdnMemory expected = run(c, prefill);
  const DeviceBuffer rows(gpu(), 2 * span), outputs(gpu(), 2 * span), gates(gpu(), 4 * span);
  scatter(c, TensorId::kQ, qk_width, kStride, 0, rows);
  scatter(c, TensorId::kK, qk_width, kStride, qk_width, rows);
  scatter(c, TensorId::kV, v_width, kStride, 2 * qk_width, rows);
  scatter(c, TensorId::kG, problem.heads.count(), kStride, 0, gates);
  scatter(c, TensorId::kBeta, problem.heads.count(), kStride, problem.heads.count(), gates);
  gdn::PrefillArgs args = c.args();
  args.q = far_view(args.q, rows, kStride, 0);
  args.k = far_view(args.k, rows, kStride, qk_width);
  args.v = far_view(args.v, rows, kStride, 2 * qk_width);
  args.g = far_view(args.g, gates, kStride, 0);
  args.beta = far_view(args.beta, gates, kStride, problem.heads.count());
  args.o = far_view(args.o, outputs, kStride, 0);
  const GdnMemory results = run(c, prefill, args);
  CHECK(same_bytes(c.bytes(results, TensorId::kState), c.bytes(expected, TensorId::kState)));
  CHECK(same_bytes(c.bytes(results, TensorId::kO), c.bytes(c.memory(), TensorId::kO)));
  const auto row_bytes = static_cast<std::size_t>(2 * v_width);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const GdnCase::Place at = c.row_at(TensorId::kO, 0, t, 0);
    const auto row = std::span(expected[at.piece]).subspan(at.byte, row_bytes);
    const std::vector<std::byte> far =
        outputs.download(static_cast<std::size_t>(2 * t * kStride), row_bytes);
    INFO("token " << t << ", seed " << seed());
    REQUIRE(same_bytes(far, row));
  }
}

}  // namespace
}  // namespace cubinery::test
