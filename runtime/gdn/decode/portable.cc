// The portable path of decode: one pass over the state, which stays in registers; every
// architecture, with states in fp8 from sm_89 on.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/gdn/decode/args.h"
#include "runtime/gdn/decode/cost.h"
#include "runtime/gdn/decode/paths.h"
#include "runtime/gdn/shared/problem_check.h"
#include "runtime/gdn/shared/requests.h"

namespace cubinery::gdn {
namespace {

class PortableDecodeRunner final : public DecodeRunner {
 public:
  PortableDecodeRunner(const DecodeProblem& problem, const GdnDecodeKey& key, Kernel kernel)
      : problem_(problem),
        blocks_per_request_(blocks_of_request(key, problem.heads.count())),
        cluster_(problem.conv.is_there() ? static_cast<unsigned>(conv_cluster(problem, key)) : 1),
        kernel_(std::move(kernel)) {}

  const Kernel& kernel() const override { return kernel_; }

  Status launch(Stream stream, const DecodeArgs& args, std::int64_t batch) const override {
    GdnDecodeParams params{};
    CUBINERY_RETURN_IF_ERROR(bind_decode(problem_, args, batch, &params));
    Launch grid = request_grid(blocks_per_request_, batch, args.enable_pdl);
    grid.cluster.x = cluster_;
    return kernel_.launch(stream, grid, params);
  }

 private:
  DecodeProblem problem_;
  unsigned blocks_per_request_;
  unsigned cluster_;
  Kernel kernel_;
};

struct WideAndNarrow {
  GdnDecodeKey wide, narrow;
};

// Rows of the state lie along key_dim: eight lanes share one, so that a warp reads four at a time,
// in the longest vectors that fit eight of them into a row.
WideAndNarrow vk_keys(GdnDecodeKey key) {
  const int row_bytes = key.key_dim * size_of(key.states.dtype);
  key.vec_bytes = 16;
  while (row_bytes % (key.k_lanes * key.vec_bytes) != 0) key.vec_bytes /= 2;
  GdnDecodeKey wide = key, narrow = key;
  wide.warp_v = wide.held_v = size_of(key.states.dtype) < 4 ? 16 : 8;
  wide.warps = 1;
  while (data_registers(wide) > 128 && wide.held_v > 4) wide.held_v /= 2;  // a long row of decays
  narrow.warp_v = narrow.held_v = 4;
  narrow.warps = 2;
  return {wide, narrow};
}

// Rows of the state lie along value_dim, and warps of a block side by side along them: a piece of
// a row that is no whole number of 64 bytes is read twice from memory.  A thread has the rows of
// key_dim / k_lanes: so many lanes that it has registers for them.  Narrow ones have as long a
// piece in fp8 as in 16 bits.
WideAndNarrow kv_keys(const GdnDecodeKey& key) {
  const auto with_vector_of = [&](int elements, int warps) {
    GdnDecodeKey made = key;
    made.vec_bytes = elements * size_of(key.states.dtype);
    made.warp_v = made.held_v = 32 / key.k_lanes * elements;
    made.warps = warps;
    return made;
  };
  if (key.k_lanes == 4) return {with_vector_of(2, 4), with_vector_of(2, 1)};
  return {with_vector_of(4, 4), with_vector_of(2, is_fp8(key.states.dtype) ? 4 : 2)};
}

// With an output norm a block has a whole head: few warps that go through their columns, or as many
// as there may be.
WideAndNarrow whole_head_keys(const WideAndNarrow& keys) {
  const auto first_valid = [](GdnDecodeKey key, std::initializer_list<int> columns) {
    for (const int warp_v : columns) {
      key.warp_v = warp_v;
      key.warps = warps_of_head(key);
      if (valid(key)) break;
    }
    return key;
  };
  GdnDecodeKey few = first_valid(keys.wide, {32, 16, 8, 4});
  if (!valid(few)) few = first_valid(keys.narrow, {32, 16, 8, 4});
  return {few, first_valid(keys.narrow, {4, 8, 16, 32})};
}

// The most blocks of a cluster that every GPU takes.
int most_of_cluster(const Target& target) { return has_clusters(target.arch.major) ? 8 : 1; }

// Whether it is a key, and with a convolution its blocks fit into a cluster.
bool fits_target(const DecodeProblem& problem, const GdnDecodeKey& key, const Target& target) {
  return valid(key) &&
         (!problem.conv.is_there() || conv_cluster(problem, key) <= most_of_cluster(target));
}

// With a convolution: the first key that fits of those with so many columns to a warp.
std::optional<GdnDecodeKey> clustered_key(const DecodeProblem& problem, GdnDecodeKey key,
                                          std::initializer_list<int> columns, int held,
                                          const Target& target) {
  for (const int warp_v : columns) {
    key.warp_v = warp_v;
    key.held_v = std::min(warp_v, held);
    const int whole = key.value_dim / warp_v;
    for (const int warps : {4, 8, 2, 1, whole, 3, 5, 6, 7}) {
      key.warps = key.output_norm != OutputNorm::kNone ? whole : warps;
      if (fits_target(problem, key, target)) return key;
    }
  }
  return std::nullopt;
}

// Blocks of many columns, of which each makes q and k: few of these for large batches, and many for
// small ones.  Along value_dim a warp holds as many columns as its lanes have vectors.  Nothing
// where there are none.
std::optional<WideAndNarrow> clustered_keys(const DecodeProblem& problem, const WideAndNarrow& keys,
                                            const Target& target) {
  const bool rows_are_v = problem.states.layout == StateLayout::kVK;
  const auto first = [&](std::initializer_list<int> columns) -> std::optional<GdnDecodeKey> {
    for (const GdnDecodeKey& key : {keys.wide, rows_are_v ? keys.wide : keys.narrow}) {
      for (const int held : {8, 4}) {
        const auto found =
            clustered_key(problem, key, columns, rows_are_v ? held : key.held_v, target);
        if (found) return found;
      }
    }
    return std::nullopt;
  };
  const auto wide = first({32, 16, 8, 4}), narrow = first({8, 16, 32, 4});
  if (!wide || !narrow) return std::nullopt;
  return WideAndNarrow{*wide, *narrow};
}

class DecodePortable final : public DecodeKeyPath {
 public:
  DecodePortable() : KeyedPath("portable", {KernelNames{}}) {}

  // Two that sum in the same order.  The first is wide: many value columns per warp, for large
  // batches.  The second is narrow: more warps, for small batches.
  std::vector<KeySet> default_keys(const DecodeProblem& problem,
                                   const Target& target) const override {
    GdnDecodeKey key = std::get<0>(fixed_keys(problem));
    const bool rows_are_v = problem.states.layout == StateLayout::kVK;
    key.k_lanes = rows_are_v ? 8 : kv_lanes(key.key_dim, key.states.dtype, key.inputs.decay);
    const auto made = [&] { return rows_are_v ? vk_keys(key) : kv_keys(key); };
    WideAndNarrow keys = made();
    if (problem.output_norm != OutputNorm::kNone) {
      keys = whole_head_keys(keys);
      if (!valid(keys.narrow)) {  // too many elements for a thread of so many warps
        key.k_lanes *= 2;
        keys = whole_head_keys(made());
      }
    }
    if (problem.conv.is_there()) {
      std::optional<WideAndNarrow> clustered = clustered_keys(problem, keys, target);
      if (!clustered) {  // likewise
        key.k_lanes *= 2;
        clustered = clustered_keys(problem, made(), target);
      }
      if (!clustered) return {};
      keys = *clustered;
    }
    return {keys.wide, keys.narrow};
  }

 protected:
  std::optional<std::string> why_not_here(const DecodeProblem& problem,
                                          const Target& target) const override {
    if (problem.conv.is_there() && default_keys(problem, target).empty()) {
      return fmt::format(
          "conv_width = {} needs up to 8 heads for each of q, k and v, and sm_90 or newer where "
          "that is more than one; accepted: 0, and a convolution by itself in front",
          problem.conv.width);
    }
    const DType dtype = problem.states.dtype;
    if (!is_fp8(dtype) || has_fp8(target.arch)) return std::nullopt;
    return fmt::format("state_dtype = {} needs sm_89 or newer; accepted: f32, bf16, f16",
                       value_text(dtype));
  }
  bool fits(const DecodeProblem& problem, const KeySet& keys, const Target& target) const override {
    return fits_target(problem, std::get<0>(keys), target);
  }
  Cost cost(const DecodeProblem&, const KeySet& keys, const Target& target) const override {
    return [key = std::get<0>(keys), target](const Point& at) {
      return decode_us(key, at[0], target);
    };
  }
  std::unique_ptr<const DecodeRunner> loaded(const DecodeProblem& problem, const KeySet& keys,
                                             const Target&,
                                             std::vector<Kernel> kernels) const override {
    return std::make_unique<PortableDecodeRunner>(problem, std::get<0>(keys),
                                                  std::move(kernels.front()));
  }
  void correct_bits(const KeySet& keys, Values* values) const override {
    correct_step_bits(std::get<0>(keys).states.layout, values);
  }
};

}  // namespace

int conv_cluster(const DecodeProblem& problem, const GdnDecodeKey& key) {
  const Heads& heads = problem.heads;
  const int of_keys = std::lcm(heads.count() / heads.q, heads.count() / heads.k);
  return std::lcm(of_keys, heads.count() / heads.v) * key.value_dim / block_columns(key);
}

void correct_step_bits(StateLayout layout, std::vector<TunedValue>* values) {
  if (layout == StateLayout::kVK) return;
  for (TunedValue& value : *values) {
    if (value.name == "vec_bytes") value.changes_bits = false;
  }
}

int kv_lanes(int key_dim, DType dtype, Decay decay) {
  if (key_dim > 128) return 16;
  const bool has_rows_of_decays = decay == Decay::kChannel;  // in registers, beside k and q
  return size_of(dtype) < 4 || has_rows_of_decays ? 8 : 4;
}

const DecodeKeyPath& decode_portable() {
  static const DecodePortable kPath;
  return kPath;
}

}  // namespace cubinery::gdn

template class cubinery::KeyedPath<cubinery::gdn::DecodeProblem, cubinery::gdn::DecodeRunner,
                                   cubinery::GdnDecodeKey>;
