// What a cubin says of itself: the ELF note .note.nv.tkinfo that ptxas writes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cubinery {

struct CubinNote {
  std::string arch;  // "sm_90a", suffix included: the ELF header's flags cannot tell 100 from 100a
  std::string compiler;  // "13.0.88"
};

// nullopt: not a 64-bit ELF file for NVIDIA GPUs, damaged, or without the note.
std::optional<CubinNote> read_cubin_note(std::string_view cubin);

}  // namespace cubinery
