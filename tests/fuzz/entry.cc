#include "cache/entry.h"

#include <algorithm>
#include <charconv>

#include "cache/cubin_note.h"
#include "codegen/identity.h"
#include "runtime/jit/kernel_info.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

namespace {

void read(std::string_view input) {
  Entry entry;
  if (decode_entry(input, &entry) != EntryProblem::kNone) return;
  fuzz::require(encode_entry(entry) == input);
  (void)read_cubin_note(entry.cubin);
  KernelInfo info;
  (void)read_metadata(entry.metadata, &info);
}

}  // namespace

CUBINERY_FUZZ_TARGET(entry) {
  read(input);
  // Once more with its last 16 bytes as the right checksum: nobody finds that by chance.
  std::string sealed(input.substr(0, input.size() - std::min<std::size_t>(input.size(), 16)));
  const std::string digest = digest_of(sealed);
  for (std::size_t i = 0; i < digest.size(); i += 2) {
    unsigned char byte = 0;
    std::from_chars(digest.data() + i, digest.data() + i + 2, byte, 16);
    sealed += static_cast<char>(byte);
  }
  read(sealed);
}
