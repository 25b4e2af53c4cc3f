#include "cache/cubin_note.h"

#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(cubin_note) {
  if (const auto note = read_cubin_note(input)) {
    fuzz::require(!note->arch.empty() && !note->compiler.empty());
    fuzz::require(!wrong_cubin(input, note->arch, note->compiler + (note->has_build ? "" : ".1")));
  }
  const auto count = read_parameters(input, "trivial");
  fuzz::require(!count || count->count >= 0);
}
