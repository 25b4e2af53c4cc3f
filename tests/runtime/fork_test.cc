// Contexts in a child of fork(): what other threads held is held there for ever.
#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "cubinery/gdn.h"
#include "cubinery/tuning.h"
#include "gdn_decode/fields.h"
#include "tests/cache/child.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"
#include "tests/runtime/cached_kernel.h"

namespace cubinery {
namespace {

using test::TempDir;

template <class T>
bool is_refused(const Result<T>& result) {
  return !result && result.error().code() == Code::kUnsupported &&
         result.error().message().find("fork()") != std::string_view::npos;
}

// Holds up whoever logs first, inside of whatever that is.
class Barrier {
 public:
  void hold_up() {
    if (taken_.exchange(true)) return;
    entered_.set_value();
    release_.get_future().wait();
  }
  void wait_for_somebody() { entered_.get_future().wait(); }
  void release() { release_.set_value(); }

 private:
  std::atomic<bool> taken_{false};
  std::promise<void> entered_, release_;
};

// What a child finds of the parent's context, as an exit code: 0, or the line that went wrong.
int child_of(std::optional<Context>* context, std::optional<Kernel>* kernel, const KernelSpec& spec,
             const test::FakeDriver& fake) {
  ::alarm(300);  // a child that hangs dies
  const Context& theirs = **context;
  if (!is_refused(theirs.get(spec))) return __LINE__;
  if (!is_refused(theirs.compile(spec))) return __LINE__;
  if (!is_refused(theirs.explain(spec))) return __LINE__;
  if (!is_refused(theirs.prepare(gdn::DecodeProblem{}))) return __LINE__;
  if (!is_refused(theirs.compile(gdn::PrefillProblem{}))) return __LINE__;
  if (!is_refused(theirs.prepare(gdn::VerifyProblem{}))) return __LINE__;
  if (!is_refused(theirs.prepare(gdn::CommitProblem{}))) return __LINE__;
  if (!is_refused(gpu_identity(theirs))) return __LINE__;
  if (theirs.stats().damaged != 1 || theirs.arch() != "sm_90a") return __LINE__;
  // The driver is the parent's.
  context->reset();
  kernel->reset();
  if (fake->libraries != 1 || fake->contexts != 1 || fake->pushed != 0) return __LINE__;
  return 0;
}

TEST_CASE("AForkedChildIsRefusedAndDoesNotHang", "[cpu]") {
  const test::FakeDriver fake(CUBINERY_FAKE_DRIVER);
  const TempDir dir;
  const KernelSpec damaged = spec_of(GdnDecodeKey{.warps = 1}).value();
  const KernelSpec good = spec_of(GdnDecodeKey{.warps = 2}).value();
  fake->param_bytes["gdn_decode"] = good.param_bytes;
  Barrier barrier;
  std::optional<Context> context =
      Context::create({.offline = true,
                       .driver_path = CUBINERY_FAKE_DRIVER,
                       .cache_dir = dir.path(),
                       .log = [&](LogLevel, std::string_view) { barrier.hold_up(); }})
          .value();
  REQUIRE_FALSE(test::store_trivial(*context, good, dir.path()).empty());
  std::optional<Kernel> kernel = context->get(good).value();
  const std::string path = test::store_trivial(*context, damaged, dir.path());
  test::write_bytes(path, test::read_bytes(path) + "damage");

  std::thread other([context = &*context, &damaged] { (void)context->get(damaged); });
  barrier.wait_for_somebody();  // which holds the kernel's lock
  CHECK(test::wait_for(
            test::start_child([&] { return child_of(&context, &kernel, damaged, fake); })) == 0);
  // The parent goes on.
  CHECK(kernel->launch(nullptr, {}, GdnDecodeParams{}).ok());
  barrier.release();
  other.join();
}

}  // namespace
}  // namespace cubinery
