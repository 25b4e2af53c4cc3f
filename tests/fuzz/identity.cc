#include "codegen/identity.h"

#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(identity) {
  const auto identity = parse_identity(input);
  if (!identity) return;
  fuzz::require(to_text(*identity) == input);
  fuzz::require(differences(*identity, *identity).empty());
  Identity other = *identity;
  other.key = "k;a=1;b=2";
  (void)differences(*identity, other);
  (void)request_digest(*identity);
}
