// What the paths of prefill have in common: chunk WY factors, then a scan, with mma.sync on every
// architecture or with wgmma on sm_90a.
#pragma once

#include <array>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/gdn/prefill/kernels.h"
#include "runtime/gdn/prefill/paths.h"

namespace cubinery::gdn {

// How a path's scan computes: with mma.sync, with wgmma, or with wgmma and making the WY factors
// itself.
enum class ScanForm { kMma, kWgmma, kFused };

// `More`: keys behind those of the two kernels.
template <class... More>
class PrefillScanPath : public KeyedPath<PrefillProblem, PrefillRunner, GdnPrefillChunksKey,
                                         GdnPrefillScanKey, More...> {
  using Base =
      KeyedPath<PrefillProblem, PrefillRunner, GdnPrefillChunksKey, GdnPrefillScanKey, More...>;

 public:
  using typename Base::KeySet;

 protected:
  // `more`: a KernelNames for each of `More`.
  template <class... Names>
  PrefillScanPath(std::string_view name, ScanForm form, Names... more)
      : Base(name, std::array{KernelNames{.prefix = "chunks.", .shared = "chunk_size"},
                              KernelNames{.prefix = "scan.", .shared = "chunk_size"}, more...}),
        form_(form) {}

  static PrefillKernels kernels_of(const KeySet& keys) {
    return {.chunks = std::get<0>(keys), .scan = std::get<1>(keys)};
  }

  void set_own_fields(KeySet* keys) const override {
    GdnPrefillScanKey& scan = std::get<1>(*keys);
    scan.wgmma = with_wgmma();
    scan.makes_wy = form_ == ScanForm::kFused;
    if (!scan.makes_wy) scan.inputs = {.decay = scan.inputs.decay};
    // A block has one head, and more to do for it.
    if (scan.inputs.decay == Decay::kChannel) std::get<0>(*keys).warps = 4;
  }

  // With wgmma, the scan for tensors that TMA cannot read or write; then the first kernel of scans
  // that make WY factors of segments.
  void add_other_kernels(const KeySet& keys, std::vector<KernelSpec>* specs) const final {
    if (!with_wgmma()) return;
    GdnPrefillScanKey key = std::get<1>(keys);
    key.threads_copy = true;
    key.makes_wy = false;
    key.inputs = {};
    specs->push_back(*spec_of(key));
    if (form_ != ScanForm::kFused || !key.segments) return;
    GdnPrefillChunksKey decays = std::get<0>(keys);
    decays.only_decays = true;
    specs->push_back(*spec_of(decays));
  }

  bool with_wgmma() const { return form_ != ScanForm::kMma; }
  ScanForm form() const { return form_; }

 private:
  ScanForm form_;
};

}  // namespace cubinery::gdn
