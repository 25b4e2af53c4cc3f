#include "runtime/jit/kernel_info.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(metadata) {
  KernelInfo info;
  if (!read_metadata(input, &info)) return;
  KernelInfo again;
  fuzz::require(read_metadata(metadata_json(info), &again));
  fuzz::require(metadata_json(again) == metadata_json(info));
}
