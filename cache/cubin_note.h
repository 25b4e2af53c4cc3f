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
  std::string compiler;  // "13.0.88"
};

// nullopt: not a 64-bit ELF file for NVIDIA GPUs, damaged, or without the note.
std::optional<CubinNote> read_cubin_note(std::string_view cubin);

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
