#include "runtime/gdn/decode_portable.h"

#include <limits>
#include <utility>

#include "runtime/gdn/decode_args.h"
#include "runtime/gdn/decode_cost.h"

namespace cubinery::gdn {
namespace {

class PortableDecodeRunner final : public DecodeRunner {
 public:
  PortableDecodeRunner(const DecodeProblem& problem, const GdnDecodeKey& key, Kernel kernel)
      : problem_(problem),
        warps_per_request_(problem.heads.count() * (key.value_dim / key.warp_v)),
        warps_per_block_(key.warps),
        max_batch_(std::numeric_limits<int>::max() / 2 / warps_per_request_),
        kernel_(std::move(kernel)) {}

  const Kernel& kernel() const override { return kernel_; }
  std::int64_t max_batch() const override { return max_batch_; }

  Status launch(Stream stream, const DecodeArgs& args, std::int64_t batch) const override {
    GdnDecodeParams params{};
    CUBINERY_RETURN_IF_ERROR(bind_decode(problem_, args, batch, &params));
    // At most half of what an int holds.
    const auto warps = static_cast<unsigned>(batch) * static_cast<unsigned>(warps_per_request_);
    const auto per_block = static_cast<unsigned>(warps_per_block_);
    return kernel_.launch(
        stream, {.grid_x = (warps + per_block - 1) / per_block, .programmatic = args.programmatic},
        params);
  }

 private:
  DecodeProblem problem_;
  int warps_per_request_;
  int warps_per_block_;
  std::int64_t max_batch_;
  Kernel kernel_;
};

// Rows of the state lie along key_dim: eight lanes share one, so that a warp reads four at a time,
// in the longest vectors that fit eight of them into a row.
std::vector<std::tuple<GdnDecodeKey>> vk_keys(GdnDecodeKey key) {
  const int row_bytes = key.key_dim * size_of(key.states.dtype);
  key.k_lanes = 8;
  key.vec_bytes = 16;
  while (row_bytes % (key.k_lanes * key.vec_bytes) != 0) key.vec_bytes /= 2;
  GdnDecodeKey wide = key, narrow = key;
  wide.warp_v = 16;
  if (!valid(wide)) wide.warp_v = 8;  // a long key_dim: half as many columns per thread
  wide.warps = 1;
  narrow.warp_v = 8;
  narrow.warps = 2;
  return {wide, narrow};
}

// Rows of the state lie along value_dim: a warp reads 16 (wide) or 8 (narrow) columns of eight rows
// at a time, or half as many of sixteen, where eight would leave each thread more rows than it has
// registers for.
std::vector<std::tuple<GdnDecodeKey>> kv_keys(GdnDecodeKey key) {
  key.k_lanes = key.key_dim > 128 ? 16 : 8;
  const auto with_vector_of = [&](int elements, int warps) {
    GdnDecodeKey made = key;
    made.vec_bytes = elements * size_of(key.states.dtype);
    made.warp_v = 32 / key.k_lanes * elements;
    made.warps = warps;
    return made;
  };
  return {with_vector_of(4, 4), with_vector_of(2, 2)};
}

}  // namespace

std::vector<DecodePortable::KeySet> DecodePortable::default_keys(const DecodeProblem& problem,
                                                                 const Target&) const {
  const GdnDecodeKey key = std::get<0>(fixed_keys(problem));
  return problem.states.layout == StateLayout::kVK ? vk_keys(key) : kv_keys(key);
}

bool DecodePortable::fits(const DecodeProblem&, const KeySet& keys, const Target&) const {
  return valid(std::get<0>(keys));
}

double DecodePortable::us(const DecodeProblem&, const KeySet& keys, const Point& at,
                          const Target& target) const {
  return decode_us(std::get<0>(keys), at[0], target);
}

std::unique_ptr<const DecodeRunner> DecodePortable::loaded(const DecodeProblem& problem,
                                                           const KeySet& keys, const Target&,
                                                           std::vector<Kernel> kernels) const {
  return std::make_unique<PortableDecodeRunner>(problem, std::get<0>(keys),
                                                std::move(kernels.front()));
}

// With rows along value_dim a vector holds columns, each of which is summed by itself.
void DecodePortable::correct_bits(const KeySet& keys, Values* values) const {
  if (std::get<0>(keys).states.layout == StateLayout::kVK) return;
  for (TunedValue& value : *values) {
    if (value.name == "vec_bytes") value.changes_bits = false;
  }
}

const DecodePortable& decode_portable() {
  static const DecodePortable kPath;
  return kPath;
}

}  // namespace cubinery::gdn
