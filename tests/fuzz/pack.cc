#include "cache/pack.h"

#include "cache/bytes.h"
#include "tests/cache/mem_env.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

namespace {

void read_pack(std::string_view input) {
  test::MemEnv env;
  env.files()["/pack"].bytes = std::string(input);
  env.files()["/pack"].info.bytes = input.size();
  const PackFile file = open_pack(env, "/pack");
  fuzz::require((file.pack == nullptr) == !file.trouble.empty());
  if (!file.pack) return;
  std::uint64_t end = 0;
  for (const Pack::Record& record : file.pack->records()) {
    fuzz::require(file.pack->find(record.name) == &record);
    fuzz::require(record.offset >= end && record.offset + record.bytes <= input.size());
    end = record.offset + record.bytes;
    (void)file.pack->read(record);
    (void)file.pack->read_identity(record);
  }
  fuzz::require(end == input.size());
}

}  // namespace

CUBINERY_FUZZ_TARGET(pack) {
  read_pack(input);
  // Once more with the right checksum behind the index: nobody finds that by chance.
  if (input.size() < 32) return;
  const std::size_t front = 16 + std::size_t{read_u32(input, 12)};
  if (front > input.size() - 16) return;
  std::string sealed(input);
  sealed.replace(front, 16, checksum(input.substr(0, front)));
  read_pack(sealed);
}
