// What must not change a bit of a GDN prefill: the batch around a sequence, other sequences'
// values, the workspace, graphs, streams, threads, and pieces.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <vector>

#include "codegen/arch.h"
#include "harness/random.h"
#include "tests/gpu/launches.h"

namespace cubinery::test {
namespace {

using gdn::Checkpoints;
using gdn::PrefillArgs;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::TokenLayout;

// Few sequences run other kernels than many, of one path: on Hopper by wgmma, where that takes
// them.
void expect_same_in_parts(const PrefillCase& c) {
  std::vector<Part> parts;
  for (const std::int64_t count : {1, 4, 14, 30}) {
    for (std::int64_t first = count % 3; first + count <= c.sequences(); first += 9 + count) {
      parts.push_back({first, count});
    }
  }
  const gdn::Prefill prefill = prepare(c.problem());
  const bool by_wgmma =
      has_wgmma(*parse_arch(gpu().context().arch())) && c.problem().dtype != DType::kF32;
  for (const Part& part : parts) {
    const std::string path = prefill.choice(c.size(c.args(part.first, part.count))).path;
    CHECK(path == (by_wgmma ? "hopper" : "portable"));
  }
  expect_same_in_parts(c, prefill, parts);
}

TEST_CASE("GdnPrefill.BitsDoNotDependOnTheBatch", "[gpu][prefill][slow]") {
  Random random(seed(), 41);
  CaseShape shape{.lead = 1, .tail = 2};
  for (int n = 0; n < 40; ++n) shape.lengths.push_back(random.below(200));
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PrefillProblem problem = small_prefill();
    problem.dtype = dtype;
    problem.value_dim = 128;
    problem.inputs.use_qk_l2norm = true;
    problem.batch_invariant = true;
    expect_same_in_parts(PrefillCase(problem, uniform(40, 100), {.seed = seed()}));
    problem.varlen = true;
    expect_same_in_parts(PrefillCase(problem, shape, {.seed = seed()}));
  }
}

// Each size has its fastest configuration: right, and the same from run to run, whatever the
// others.
TEST_CASE("GdnPrefill.WithoutBatchInvariantEverySizeIsRightAndRepeats", "[gpu][prefill][slow]") {
  PrefillProblem problem;  // of the dimensions that results are for
  problem.heads = {.q = 2, .k = 2, .v = 4};
  problem.varlen = true;
  problem.inputs.use_qk_l2norm = true;
  const gdn::Prefill prefill = prepare(problem);
  for (const std::int64_t count : {1, 8, 40}) {
    const PrefillCase c(problem, uniform(count, 150), {.seed = seed()});
    const GdnMemory first = run(c, prefill);
    expect_good(c, first, std::to_string(count) + " sequences");
    CHECK(first_difference(run(c, prefill), first) == "");
  }
}

// Makes sequence n of `to` what `from` has as sequence m, of the same length.
void take_sequence(PrefillCase* to, std::int64_t n, const PrefillCase& from, std::int64_t m) {
  const auto copy = [&](const GdnCase::Place& there, const GdnCase::Place& here,
                        std::size_t bytes) {
    std::memcpy(to->at(there), from.memory()[here.piece].data() + here.byte, bytes);
  };
  const PrefillProblem& p = from.problem();
  const auto copy_rows = [&](TensorId tensor, std::int64_t heads, int width) {
    const Tensor x = tensor_of(from.args(), tensor);
    for (std::int64_t t = 0; t < from.length(m) && x.present(); ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        copy(to->row_at(tensor, n, t, h), from.row_at(tensor, m, t, h),
             idx(width * size_of(x.dtype)));
      }
    }
  };
  copy_rows(TensorId::kQ, p.heads.q, p.key_dim);
  copy_rows(TensorId::kK, p.heads.k, p.key_dim);
  copy_rows(TensorId::kV, p.heads.v, p.value_dim);
  copy_rows(TensorId::kG, p.heads.count(), 1);
  copy_rows(TensorId::kBeta, p.heads.count(), 1);
  for (std::int64_t h = 0; h < p.heads.count() && p.states.has_initial; ++h) {
    copy(to->matrix_at(TensorId::kState, to->row(n).read, h),
         from.matrix_at(TensorId::kState, from.row(m).read, h), from.matrix_bytes());
  }
}

// The same tokens at another place of another batch, lying otherwise.
TEST_CASE("GdnPrefill.BitsDoNotDependOnThePlace", "[gpu][prefill]") {
  PrefillProblem invariant = small_varlen();
  invariant.batch_invariant = true;
  const PrefillCase c(invariant, {.lengths = {130, 77, 200}}, {.seed = seed()});
  const gdn::Prefill prefill = prepare(c.problem());
  const GdnMemory expected = run(c, prefill);
  for (const Placement placement :
       {Placement::kContiguous, Placement::kRank4, Placement::kUnaligned}) {
    for (const TokenLayout layout : {TokenLayout::kBTHD, TokenLayout::kBHTD}) {
      PrefillProblem problem = invariant;
      problem.token_layout = layout;
      // Another seed: everything but the sequence taken over is different.
      PrefillCase other(problem, {.lengths = {31, 200, 0, 5}, .lead = 3, .tail = 1},
                        {.seed = seed() + 1, .placement = placement});
      take_sequence(&other, 1, c, 2);
      const GdnMemory results = run(other, prepare(problem));
      INFO("placement " << static_cast<int>(placement) << ", problem " << problem.to_json()
                        << ", seed " << seed());
      for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
        CHECK(same_head(c, 2, h, expected, other, 1, results));
      }
    }
  }
}

TEST_CASE("GdnPrefill.NonFiniteInputsStayInTheirSequenceAndHead", "[gpu][prefill]") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PrefillProblem problem = small_varlen();  // two value heads per key head
    problem.dtype = dtype;
    const CaseShape shape{.lengths = {90, 100, 75}};
    expect_all_confined([&] { return PrefillCase(problem, shape, {.seed = seed()}); },
                        prepare(problem, {size_of(shape)}), 70);
  }
}

CaseShape mixed_shape() { return {.lengths = {5, 300, 0, 64, 129, 17}, .lead = 2, .tail = 2}; }

TEST_CASE("GdnPrefill.SameBitsEveryTime", "[gpu][prefill]") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PrefillProblem problem = small_varlen();
    problem.dtype = dtype;
    problem.checkpoints = Checkpoints::kBefore;
    const PrefillCase c(problem, mixed_shape(), {.seed = seed()});
    const gdn::Prefill prefill = prepare(problem, {c.size(c.args())});
    const GdnMemory first = run(c, prefill);
    for (int i = 0; i < 5; ++i) CHECK(first_difference(run(c, prefill), first) == "");
  }
}

// What compares a hundred thousand launches finds one bit.
TEST_CASE("DeviceBits.FirstDifferenceOfTheFirstLaunchThatHasOne", "[gpu][prefill]") {
  const PrefillCase c(small_varlen(), mixed_shape(), {.seed = seed()});
  const gdn::Prefill prefill = prepare(c.problem(), {c.size(c.args())});
  const Session<PrefillCase> session(c, prefill, c.args());
  const GdnMemory expected = run(c, prefill);
  const auto found = [&](const GdnMemory& after) {
    const DeviceBits bits(c.addresses(), c.memory(), after);
    for (const std::uint32_t launch : {9, 5, 7}) {
      REQUIRE(bits.renew(session.stream().get()).ok());
      REQUIRE(session.launch(c.args()).ok());
      REQUIRE(bits.compare(session.stream().get(), launch).ok());
    }
    CHECK((first_difference(session.finish(), after) == "") == (after == expected));
    return bits.first_difference();
  };
  CHECK(found(expected) == "");
  constexpr auto kOutputs = static_cast<std::size_t>(TensorId::kO);
  const std::size_t bytes = expected[kOutputs].size() - 2 * kGuardBytes;
  for (const std::size_t at : {std::size_t{0}, bytes / 2, bytes}) {  // `bytes`: the guard band
    GdnMemory other = expected;
    other[kOutputs][kGuardBytes + at] ^= std::byte{1};
    CHECK(found(other) == fmt::format("launch 5: o, byte {} of {}", at, bytes));
  }
}

TEST_CASE("GdnPrefill.ContentOfTheWorkspaceDoesNotMatter", "[gpu][prefill]") {
  const PrefillCase c(small_varlen(), mixed_shape(), {.seed = seed()});
  const gdn::Prefill prefill = prepare(c.problem());
  const GdnMemory expected = run(c, prefill);  // on NaN
  const Session<PrefillCase> session(c, prefill, c.args());
  const DeviceBuffer& workspace = session.workspace();
  for (const int fill : {0x00, 0x7f, 0x3c}) {
    workspace.upload(std::vector<std::byte>(workspace.bytes(), static_cast<std::byte>(fill)));
    c.upload();
    REQUIRE(session.launch(c.args()).ok());
    CHECK(first_difference(session.finish(), expected) == "");
  }
  // As another launch left it.
  const PrefillCase other(small_varlen(), {.lengths = {200, 31}}, {.seed = seed() + 1});
  c.upload();
  REQUIRE(session.launch(other.args()).ok());
  REQUIRE(session.launch(c.args()).ok());
  CHECK(first_difference(session.finish(), expected) == "");
}

TEST_CASE("GdnPrefill.GraphReplayEqualsEagerLaunch", "[gpu][prefill]") {
  for (const bool enable_pdl : {false, true}) {
    const PrefillCase c(small_varlen(), mixed_shape(), {.seed = seed(), .enable_pdl = enable_pdl});
    const gdn::Prefill prefill = prepare(c.problem(), {c.size(c.args())});
    if (enable_pdl && !can_enable_pdl(c, prefill)) return;
    expect_same_in_graph(c, prefill, 1, 2);
  }
}

TEST_CASE("GdnPrefill.LaunchWithPdlEqualsPlainLaunch", "[gpu][prefill]") {
  for (const std::int64_t count : {1, 3, 40}) {
    const PrefillCase c(small_prefill(), uniform(count, 100), {.seed = seed()});
    const gdn::Prefill prefill = prepare(c.problem(), {c.size(c.args())});
    if (!can_enable_pdl(c, prefill)) return;
    expect_same_with_pdl(c, prefill, 2);
    expect_same_with_pdl(c, prefill, 20);
  }
}

TEST_CASE("GdnPrefill.LaunchesFromSeveralThreadsAndStreams", "[gpu][prefill]") {
  std::vector<std::unique_ptr<PrefillCase>> cases;
  for (int i = 0; i < 4; ++i) {
    const CaseOptions options{.seed = seed() + static_cast<std::uint64_t>(i)};
    cases.push_back(
        std::make_unique<PrefillCase>(small_varlen(), uniform(1 + 7 * i, 130), options));
  }
  expect_same_from_threads(cases, prepare(small_varlen()), 20);
}

// Tokens bounds[i] to bounds[i + 1] - 1 of every sequence, piece after piece, the state carried
// over.
GdnMemory run_in_pieces(const PrefillCase& c, const gdn::Prefill& prefill,
                        const std::vector<std::int64_t>& bounds) {
  const Session<PrefillCase> session(c, prefill, c.args());
  c.upload();
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    gdn::PrefillArgs args = c.args();
    for (Tensor* tensor : token_tensors(&args)) {
      slice(tensor, c.token_dimension(), bounds[i], bounds[i + 1] - bounds[i]);
    }
    REQUIRE(session.launch(args).ok());
  }
  return session.finish();
}

TEST_CASE("GdnPrefill.PiecesEqualTheWhole", "[gpu][prefill][slow]") {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
      PrefillProblem problem = small_prefill();
      problem.batch_invariant = true;  // pieces are as long as they are
      problem.dtype = dtype;
      problem.states.layout = layout;
      const CaseOptions options{.seed = seed()};
      const CaseShape shape = uniform(2, 300);
      const PrefillCase c(problem, shape, options);
      const gdn::Prefill prefill = prepare(problem);
      const GdnMemory whole = run(c, prefill);
      for (const auto& bounds : std::vector<std::vector<std::int64_t>>{
               {0, 64, 300}, {0, 128, 300}, {0, 192, 256, 300}, {0, 64, 128, 192, 256, 300}}) {
        INFO("pieces up to " << bounds[1] << ", problem " << problem.to_json() << ", seed "
                             << seed());
        CHECK(first_difference(run_in_pieces(c, prefill, bounds), whole) == "");
      }
      // Other chunks, other roundings.
      for (const auto& bounds : std::vector<std::vector<std::int64_t>>{
               {0, 1, 300}, {0, 37, 38, 300}, {0, 100, 200, 300}, {0, 0, 299, 300}}) {
        expect_good(c, run_in_pieces(c, prefill, bounds),
                    "pieces up to " + std::to_string(bounds[1]) + ", problem " + problem.to_json());
      }
    }
  }
}

}  // namespace
}  // namespace cubinery::test
