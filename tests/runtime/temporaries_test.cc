// What a temporary of a public class holds outlives it: accessors of rvalues return by value.
#include <string>
#include <type_traits>
#include <utility>

#include "cubinery/gdn.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using Text = Result<std::string>;
static_assert(std::is_same_v<decltype(std::declval<Text>().value()), std::string>);
static_assert(std::is_same_v<decltype(*std::declval<Text>()), std::string>);
static_assert(std::is_same_v<decltype(std::declval<Text>().error()), Status>);
static_assert(std::is_same_v<decltype(std::declval<Text&>().value()), std::string&>);
static_assert(std::is_same_v<decltype(std::declval<const Text&>().value()), const std::string&>);
static_assert(std::is_same_v<decltype(std::declval<Status>().message()), std::string>);
static_assert(std::is_same_v<decltype(std::declval<Status>().log()), std::string>);
static_assert(std::is_same_v<decltype(std::declval<Status&>().message()), std::string_view>);
static_assert(std::is_same_v<decltype(std::declval<Context>().arch()), std::string>);
static_assert(std::is_same_v<decltype(std::declval<Kernel>().info()), KernelInfo>);
static_assert(std::is_same_v<decltype(std::declval<gdn::Decode>().problem()), gdn::DecodeProblem>);
static_assert(std::is_same_v<decltype(std::declval<gdn::Decode>().kernel(1)), Kernel>);
static_assert(
    std::is_same_v<decltype(std::declval<gdn::Prefill>().problem()), gdn::PrefillProblem>);
static_assert(std::is_same_v<decltype(std::declval<gdn::Verify>().problem()), gdn::VerifyProblem>);
static_assert(
    std::is_same_v<decltype(std::declval<gdn::Verify>().kernel(gdn::VerifySize{})), Kernel>);
static_assert(std::is_same_v<decltype(std::declval<gdn::Commit>().problem()), gdn::CommitProblem>);
static_assert(
    std::is_same_v<decltype(std::declval<gdn::Commit>().kernel(gdn::CommitSize{})), Kernel>);

TEST_CASE("ALoopOverATemporaryResultIsSafe", "[cpu]") {
  std::string names;
  for (const auto& kernel : gdn::DecodeProblem{}.kernels("sm_90a").value()) names += kernel.kernel;
  CHECK(names.starts_with("gdn_decode"));
  const auto& kernels = *gdn::DecodeProblem{}.kernels("sm_90a");
  CHECK(kernels.at(0).kernel == "gdn_decode");
  const auto& error = gdn::DecodeProblem{}.kernels("sm_1").error();
  CHECK(error.message().starts_with("gdn_decode: arch = sm_1; accepted: "));
  const auto& message = gdn::DecodeProblem{}.kernels("sm_1").error().message();
  CHECK(message == error.message());
}

}  // namespace
}  // namespace cubinery
