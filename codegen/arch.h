// GPU architectures: names, and which device runs which cubin.  Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cubinery {

// "sm_90a": compute capability 9.0, code for exactly that chip.
struct Arch {
  int major = 0;
  int minor = 0;
  // '\0': runs on the same major version from this minor version up.  'a': on exactly this compute
  // capability.  'f': on this family, the same major version from this minor version up.
  char suffix = '\0';

  std::string name() const;
};

// nullopt: not one of known_architectures().
std::optional<Arch> parse_arch(std::string_view name);

// The architecture to compile for on a device: the one with the most features.  nullopt: not known.
std::optional<Arch> native_arch(int major, int minor);

// Since which version, "12.9", NVRTC compiles for it.
std::string_view nvrtc_since(const Arch& arch);

// Whether a cubin for `arch` runs on a device of this compute capability.
bool runs_on(const Arch& arch, int major, int minor);

// Whether the architecture has thread block clusters and programmatic dependent launch.
inline bool has_clusters(int major) { return major >= 9; }

// Whether code for the architecture may use wgmma.
inline bool has_wgmma(const Arch& arch) { return arch.major == 9 && arch.suffix == 'a'; }

// Whether the architecture converts between fp8 and f16 or f32.
inline bool has_fp8(const Arch& arch) {
  return arch.major > 8 || (arch.major == 8 && arch.minor >= 9);
}

// Bytes of dynamic shared memory that one block may use on a device of exactly this architecture.
int max_shared_bytes(const Arch& arch);

}  // namespace cubinery
