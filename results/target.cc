#include "results/target.h"

#include <algorithm>
#include <cmath>

namespace cubinery {
namespace {

// Of the data sheet's memory rate, what a copy reaches: 4.26 of 4.8 TB/s on the H200.
constexpr double kCopyShare = 0.8875;
constexpr int kBlocksPerSm = 24;  // the fewest that an architecture allows

}  // namespace

// Clocks are boost clocks where a GPU holds them.  mma.sync reaches 60 % of what wgmma and tcgen05
// do on the GPUs that have those (measured on the H200, taken over for the others).
Target typical_target(const Arch& arch) {
  const auto target = [&](int sms, double ghz, double gb_s, std::int64_t shared_kb, int max_threads,
                          double flop) {
    return Target{.arch = arch,
                  .sm_count = sms,
                  .clock_ghz = ghz,
                  .memory_gb_s = gb_s,
                  .shared_bytes_per_sm = shared_kb * 1024,
                  .shared_bytes_per_block = max_shared_bytes(arch),
                  .max_threads_per_sm = max_threads,
                  .mma_flop_per_clock_per_sm = flop};
  };
  switch (arch.major * 10 + arch.minor) {
    case 80:  // A100 SXM 80 GB
      return target(108, 1.41, 2039, 164, 2048, 2048);
    case 86:  // RTX 3090
      return target(82, 1.695, 936, 100, 1536, 512);
    case 87:  // Jetson AGX Orin 64 GB
      return target(16, 1.3, 204.8, 164, 1536, 1024);
    case 89:  // RTX 4090
      return target(128, 2.52, 1008, 100, 1536, 512);
    case 90:  // H200 SXM
      return target(132, 1.755, 4800, 228, 2048, 2458);
    case 100:  // B200
    case 103:  // B300
      return target(148, 1.85, 8000, 228, 2048, 2458);
    case 110:  // Jetson T5000
      return target(20, 1.575, 273, 228, 1536, 2458);
    case 120:  // RTX 5090
      return target(170, 2.407, 1792, 100, 1536, 512);
    default:  // 121: GB10
      return target(48, 2.418, 273, 100, 1536, 512);
  }
}

std::vector<GpuIdentity> known_gpus(const Arch& arch) {
  const auto sm_counts = [&]() -> std::vector<int> {
    switch (arch.major * 10 + arch.minor) {
      case 80:  // A30, A100 and their parts
        return {14, 28, 42, 56, 98, 108};
      case 90:  // H20, H100 PCIe, H100 and H200 SXM and their parts
        return {16, 26, 32, 60, 78, 114, 132};
      default:
        return {typical_target(arch).sm_count};
    }
  }();
  std::vector<GpuIdentity> gpus;
  for (const int count : sm_counts) {
    GpuIdentity& gpu = gpus.emplace_back();
    gpu.arch = arch.name();
    gpu.sm_count = count;
  }
  return gpus;
}

Target target_of(const Arch& arch, const GpuIdentity& gpu) {
  Target target = typical_target(arch);
  if (gpu.sm_count > 0) {
    target.memory_gb_s *= static_cast<double>(gpu.sm_count) / target.sm_count;
    target.sm_count = gpu.sm_count;
  }
  if (gpu.shared_bytes_per_sm > 0) target.shared_bytes_per_sm = gpu.shared_bytes_per_sm;
  return target;
}

double resident_blocks(const Footprint& block, const Target& target) {
  constexpr double kReservedShared = 1024;  // of each block, by CUDA
  const double registers = std::ceil(std::min(block.registers, 255.0) / 8) * 8 * block.threads;
  const double by_registers = target.registers_per_sm / registers;
  const double by_threads = target.max_threads_per_sm / static_cast<double>(block.threads);
  const double by_shared =
      static_cast<double>(target.shared_bytes_per_sm) / (block.shared_bytes + kReservedShared);
  const double most = std::min({by_registers, by_threads, by_shared, double{kBlocksPerSm}});
  return std::max(std::floor(most), 1.0);
}

double copy_rate(const Target& target) { return target.memory_gb_s * 1e3 * kCopyShare; }

}  // namespace cubinery
