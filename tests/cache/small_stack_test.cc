// The cache on threads with small stacks.
#include <string>
#include <vector>

#include "cache/pack.h"
#include "cache/store.h"
#include "tests/cache/sample.h"
#include "tests/cache/small_stack.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::small_stack_test {
namespace {

using test::numbered_entry;

// Each step in turn, or the first that failed; 0: none.
int use_cache(const std::string& dir, const std::string& pack) {
  Store store({.dir = dir});
  Entry large = numbered_entry(0);
  large.cubin.assign(std::size_t{1} << 20, 'x');
  if (!store.lock(large.identity)) return 1;
  if (!store.publish(large) || !store.publish(numbered_entry(1))) return 2;
  const std::optional<StoredEntry> found = store.lookup(large.identity);
  if (!found || found->entry.cubin != large.cubin) return 3;
  if (store.known("").size() != 2) return 4;
  if (!store.export_pack(
          pack, [](const Identity&) { return true; }, nullptr))
    return 5;
  Store packed({.dir = dir + "-2", .layers = {pack}});
  if (!packed.lookup(large.identity) || !packed.import_pack(pack, nullptr)) return 6;
  if (!packed.gc() || !packed.check_writable().ok()) return 7;
  (void)posix_env()->private_group();
  return 0;
}

TEST_CASE("TheCacheWorksOnASmallStack", "[cache]") {
  const test::TempDir temp;
  int failed = -1;
  REQUIRE(test::on_small_stack(
      [&] { failed = use_cache(temp.path() + "/cache", temp.path() + "/pack"); }));
  CHECK(failed == 0);
}

}  // namespace
}  // namespace cubinery::small_stack_test
