// Fills a cache by hand, so that tests of loading need neither a GPU nor NVRTC.
#pragma once

#include <string>

#include "cache/cubin_note.h"
#include "cache/store.h"
#include "cubinery/context.h"
#include "runtime/jit/kernel_info.h"
#include "tests/cache/temp_dir.h"

namespace cubinery::test {

// A real cubin for sm_90a, of a kernel that does nothing.
inline std::string trivial_cubin() {
  return read_bytes(CUBINERY_TEST_DIR "/golden/trivial_sm_90a.cubin");
}

// What `context` would store the kernel as, if the compiler of trivial_cubin() had made it.
inline Identity identity_of(const Context& context, const KernelSpec& spec) {
  Result<Explanation> explanation = context.explain(spec);
  if (!explanation) return {};
  Identity identity = parse_identity(explanation->identity).value_or(Identity{});
  if (identity.nvrtc.empty()) {
    identity.nvrtc = read_cubin_note(trivial_cubin()).value_or(CubinNote{}).compiler;
  }
  return identity;
}

// Puts trivial_cubin() in the place of the kernel; its path, empty when that failed.
inline std::string store_trivial(const Context& context, const KernelSpec& spec,
                                 const std::string& cache_dir) {
  Store store({.dir = cache_dir});
  const Entry entry{.identity = identity_of(context, spec),
                    .metadata = metadata_json({.registers = 7, .log = {}}),
                    .cubin = trivial_cubin()};
  const Result<std::string> path = store.publish(entry);
  return path ? *path : "";
}

}  // namespace cubinery::test
