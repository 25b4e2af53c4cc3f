// What a cubin says of itself, in the ELF sections that ptxas writes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cubinery {

struct CubinNote {
  std::string arch;  // "sm_90a", suffix included: the ELF header's flags cannot tell 100 from 100a
  std::string compiler;   // "13.0.88"; "12.8" without the build
  bool has_build = true;  // CUDA 12's cubins for sm_90a and older have no note: their header tells

  // Whether the compiler of this version, "12.8.93", made the cubin, as far as it says.
  bool is_by(std::string_view version) const;
};

// nullopt: not a 64-bit ELF file for NVIDIA GPUs, damaged, or without the note where it belongs.
std::optional<CubinNote> read_cubin_note(std::string_view cubin);

// Why this is no cubin that this compiler made for this architecture; nullopt when it is.
std::optional<std::string> wrong_cubin(std::string_view cubin, std::string_view arch,
                                       std::string_view compiler);

// "Cuda compilation tools, release 13.0, V13.0.88" -> "13.0.88"; empty when there is none.
std::string toolkit_version_in(std::string_view text);

struct KernelParameters {
  int count = 0;
  std::size_t bytes = 0;             // of all of them
  std::vector<std::size_t> sizes{};  // of each; empty where the cubin contradicts itself
};

// What a kernel takes.  nullopt: the cubin does not say.
std::optional<KernelParameters> read_parameters(std::string_view cubin, std::string_view kernel);

// The symbols of the kernels in a cubin, in the order of its sections.
std::vector<std::string> kernels_in(std::string_view cubin);

}  // namespace cubinery
