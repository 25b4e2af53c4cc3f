// A prefill operator on the fake libcuda, and good arguments for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cubinery/gdn_prefill.h"
#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"
#include "tests/function_ref.h"
#include "tests/runtime/fake_operator.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery::test {

class FakePrefill {
 public:
  // One chunk size for all launches: that of batch_invariant.  The kernels are those of every
  // architecture.
  explicit FakePrefill(const gdn::PrefillProblem& problem)
      : problem_(invariant(problem)), prefill_(fake_operator(fake, dir_, problem_, kPaths)) {}

  const gdn::Prefill& prefill() const { return prefill_; }
  Context context() const { return fake_context(dir_, kPaths); }
  // What a launch of this size runs on the fake device, an sm_90.
  PrefillPair keys(const gdn::PrefillSize& size) const {
    const std::string text = prefill_.choice(size).configuration;
    return prefill_pair(problem_, values_in(problem_, text, kPaths)).value();
  }
  int chunk_size() const { return keys({}).chunks.chunk_size; }
  // Bytes of one slot of the workspace.
  std::size_t slot_bytes() const {
    const int record =
        wy_bytes(problem_.inputs.decay, chunk_size(), problem_.key_dim, problem_.dtype);
    return static_cast<std::size_t>(record * problem_.heads.count());
  }

  // `tokens` of each sequence; varlen: of all.
  gdn::PrefillArgs args(std::int64_t sequences, std::int64_t tokens) const {
    const gdn::PrefillProblem& p = problem_;
    const std::int64_t heads = p.heads.count();
    const auto of_tokens = [&](int at, DType dtype, std::int64_t count, std::int64_t dim) {
      return token_tensor(at, dtype, {sequences, tokens, count, dim});
    };
    gdn::PrefillArgs args{.q = of_tokens(1, p.dtype, p.heads.q, p.key_dim),
                          .k = of_tokens(2, p.dtype, p.heads.k, p.key_dim),
                          .v = of_tokens(3, p.dtype, p.heads.v, p.value_dim),
                          .o = of_tokens(4, p.output_dtype, heads, p.value_dim)};
    if (p.inputs.gate_mode != gdn::GateMode::kNone)
      args.g = of_tokens(5, p.inputs.gate_dtype, heads,
                         p.inputs.decay == gdn::Decay::kChannel ? p.key_dim : 0);
    if (p.inputs.beta_mode != gdn::BetaMode::kOne)
      args.beta = of_tokens(6, p.inputs.beta_dtype, heads, 0);
    const bool pool = p.states.location == gdn::StateLocation::kPool;
    args.state = states(7, pool ? 9 : sequences);
    if (pool)
      args.state_indices = Tensor::contiguous(address(8), p.states.index_dtype, {sequences});
    if (p.varlen) args.cu_seqlens = bounds(9, sequences);
    if (p.checkpoints == gdn::Checkpoints::kNone) return args;
    if (p.checkpoints == gdn::Checkpoints::kAt) {
      args.checkpoints = states(10, 11);
      args.checkpoint_offsets = Tensor::contiguous(address(16), DType::kI32, {sequences, 3});
      args.checkpoint_slots = Tensor::contiguous(address(17), p.states.index_dtype, {sequences, 3});
      return args;
    }
    const bool before = p.checkpoints == gdn::Checkpoints::kBefore;
    const std::int64_t each = (tokens + (before ? p.checkpoint_every - 1 : 0)) / p.checkpoint_every;
    args.checkpoints = states(10, p.varlen ? 11 : sequences * each);
    if (p.varlen) args.checkpoint_cu_starts = bounds(11, sequences);
    return args;
  }

  // As much as the launch of these arguments needs, or more.
  gdn::Workspace workspace(std::int64_t sequences, std::int64_t tokens) const {
    const std::int64_t all = problem_.varlen ? tokens : sequences * tokens;
    return {address(20), prefill_.workspace_bytes({.tokens = all, .sequences = sequences})};
  }

  struct Launched {
    std::optional<FakeLaunch> chunks{};
    FakeLaunch scan{};
    GdnPrefillChunksParams chunks_params{};
    GdnPrefillScanParams scan_params{};
  };

  // The kernels of one good launch.
  Launched launched(const gdn::PrefillArgs& args, const gdn::Workspace& workspace) const {
    fake->launches.clear();
    const Status status = prefill_.launch(nullptr, args, workspace);
    INFO(status.message());
    REQUIRE(status.ok());
    REQUIRE((fake->launches.size() == 1 || fake->launches.size() == 2));
    Launched launched{.scan = fake->launches.back()};
    CHECK(launched.scan.kernel == "gdn_prefill_scan");
    launched.scan_params = params_of<GdnPrefillScanParams>(launched.scan);
    if (fake->launches.size() == 1) return launched;
    launched.chunks = fake->launches.front();
    CHECK(launched.chunks->kernel == "gdn_prefill_chunks");
    launched.chunks_params = params_of<GdnPrefillChunksParams>(*launched.chunks);
    return launched;
  }
  Launched launched(std::int64_t sequences, std::int64_t tokens) const {
    return launched(args(sequences, tokens), workspace(sequences, tokens));
  }

  // The message with which `spoil` makes good arguments for two sequences (of 100 tokens each, or
  // together) bad.
  std::string refusal(FunctionRef<void(gdn::PrefillArgs&)> spoil) const {
    gdn::PrefillArgs spoilt = args(2, 100);
    spoil(spoilt);
    return refusal(spoilt, workspace(2, 100));
  }
  std::string refusal(const gdn::PrefillArgs& args, const gdn::Workspace& workspace) const {
    return refused(fake, [&] { return prefill_.launch(nullptr, args, workspace); });
  }

  FakeDriver fake{CUBINERY_FAKE_DRIVER};

 private:
  struct TokenShape {
    std::int64_t sequences, tokens, heads;
    std::int64_t dim;  // 0: none
  };

  static inline const std::vector<std::string> kPaths = {
      "gdn_prefill=-hopper", "gdn_prefill=-hopper_segments", "gdn_prefill=-hopper_fused",
      "gdn_prefill=-hopper_fused_segments"};

  static gdn::PrefillProblem invariant(gdn::PrefillProblem problem) {
    problem.batch_invariant = true;
    return problem;
  }

  Tensor token_tensor(int at, DType dtype, const TokenShape& shape) const {
    const bool heads_first = problem_.token_layout == gdn::TokenLayout::kBHTD;
    const std::int64_t outer = heads_first ? shape.heads : shape.tokens;
    const std::int64_t inner = heads_first ? shape.tokens : shape.heads;
    const std::int64_t n = shape.sequences;
    const auto make = [&](std::initializer_list<std::int64_t> extents) {
      return Tensor::contiguous(address(at), dtype, extents);
    };
    if (problem_.varlen) return shape.dim ? make({outer, inner, shape.dim}) : make({outer, inner});
    return shape.dim ? make({n, outer, inner, shape.dim}) : make({n, outer, inner});
  }

  Tensor states(int at, std::int64_t count) const {
    const gdn::PrefillProblem& p = problem_;
    const bool kv = p.states.layout == gdn::StateLayout::kKV;
    return Tensor::contiguous(
        address(at), p.states.dtype,
        {count, p.heads.count(), kv ? p.key_dim : p.value_dim, kv ? p.value_dim : p.key_dim});
  }

  Tensor bounds(int at, std::int64_t sequences) const {
    return Tensor::contiguous(address(at), problem_.cu_seqlens_dtype, {sequences + 1});
  }

  TempDir dir_;
  gdn::PrefillProblem problem_;
  gdn::Prefill prefill_;
};

}  // namespace cubinery::test
