#include "codegen/arch.h"

#include <algorithm>
#include <array>

#include "cubinery/context.h"

namespace cubinery {
namespace {

// What the templates are compiled and tested for; all are accepted by NVRTC 13.0, and some
// by older ones (nvrtc_since()).
constexpr std::array<Arch, 15> kArchitectures{{{8, 0},
                                               {8, 6},
                                               {8, 7},
                                               {8, 9},
                                               {9, 0, 'a'},
                                               {10, 0, 'a'},
                                               {10, 0, 'f'},
                                               {10, 3, 'a'},
                                               {10, 3, 'f'},
                                               {11, 0, 'a'},
                                               {11, 0, 'f'},
                                               {12, 0, 'a'},
                                               {12, 0, 'f'},
                                               {12, 1, 'a'},
                                               {12, 1, 'f'}}};

}  // namespace

std::string Arch::name() const {
  std::string text = "sm_" + std::to_string(major * 10 + minor);
  if (suffix != '\0') text += suffix;
  return text;
}

std::optional<Arch> parse_arch(std::string_view name) {
  const auto found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                  [&](const Arch& arch) { return arch.name() == name; });
  if (found == kArchitectures.end()) return std::nullopt;
  return *found;
}

std::optional<Arch> native_arch(int major, int minor) {
  // The first row of a compute capability is its most specific one.
  for (const Arch& arch : kArchitectures) {
    if (arch.major == major && arch.minor == minor) return arch;
  }
  return std::nullopt;
}

std::string_view nvrtc_since(const Arch& arch) {
  if (arch.major == 11) return "13.0";  // 12.x calls it sm_101
  const bool is_of_129 = arch.suffix == 'f' || (arch.major == 10 && arch.minor == 3) ||
                         (arch.major == 12 && arch.minor == 1);
  return is_of_129 ? "12.9" : "12.8";
}

bool runs_on(const Arch& arch, int major, int minor) {
  if (arch.suffix == 'a') return arch.major == major && arch.minor == minor;
  return arch.major == major && arch.minor <= minor;
}

// The CUDA programming guide's table of technical specifications, by compute capability.
int max_shared_bytes(const Arch& arch) {
  if (arch.major == 8) return (arch.minor == 0 || arch.minor == 7 ? 163 : 99) * 1024;
  return (arch.major == 12 ? 99 : 227) * 1024;
}

const std::vector<std::string>& known_architectures() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    names.reserve(kArchitectures.size());
    for (const Arch& arch : kArchitectures) names.push_back(arch.name());
    return names;
  }();
  return kNames;
}

}  // namespace cubinery
