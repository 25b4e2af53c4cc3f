// From a model's config.json to problems.  What each field becomes is tested with the command
// line's requests (tests/cli/model_config_test.cc), which are the same problems.
#include <fmt/format.h>

#include "cubinery/gdn.h"
#include "runtime/registry/operators.h"
#include "tests/catch.h"
#include "tests/model_configs.h"

namespace cubinery {
namespace {

using test::config_of;

TEST_CASE("AModelHasAProblemForEachOperator", "[cpu]") {
  const std::string config = config_of("Qwen3.5-27B");
  const gdn::ModelProblems problems = gdn::problems_for_model(config, 2).value();
  CHECK(problems.decode.heads.k == 8);
  CHECK(problems.decode.heads.v == 24);
  CHECK(problems.decode.check().ok());
  CHECK(problems.prefill.varlen);
  CHECK(problems.prefill.check().ok());
  CHECK(problems.commit.varlen);
  CHECK(problems.commit.max_tokens == problems.verify.max_tokens);
  CHECK(problems.commit.check().ok());
  CHECK(problems.conv.heads.v == 24);
  CHECK(problems.conv.width == 4);
  CHECK(problems.conv.check().ok());
  std::vector<std::string> names;
  for (const Problem& problem : problems_for_model(config, 2).value()) {
    names.push_back(operator_of(problem));
  }
  CHECK(names == operator_names());
  CHECK(gdn::problems_for_model(config)->decode.to_json() ==
        gdn::problems_for_model(config, 1)->decode.to_json());
}

TEST_CASE("AConfigThatIsNoneIsRefusedWithItsPlace", "[cpu]") {
  const auto message = [](std::string_view text, int tp = 1) {
    const Result<gdn::ModelProblems> problems = gdn::problems_for_model(text, tp);
    REQUIRE_FALSE(problems);
    CHECK(problems.error().code() == Code::kInvalidArgument);
    return std::string(problems.error().message());
  };
  CHECK(message("{\n  \"a\": 1,\n  \"b\": x\n}") == "not JSON at line 3, column 8");
  CHECK(message("{\"a\": 1e999}") == "a number that no double holds at column 11");
  CHECK(message("[]") == "accepted: a JSON object");
  CHECK(message("{}").starts_with("no field linear_num_key_heads"));
  CHECK(message(config_of("Qwen3.5-27B"), 0).ends_with("by tp = 0; accepted: 1, 2, 4, 8, 16"));
}

// Models without the field have four taps; a number that the convolution lacks is check()'s to
// refuse.
TEST_CASE("AModelSaysHowManyTapsItsConvolutionHas", "[cpu]") {
  const auto conv = [](const char* taps) {
    const std::string config =
        fmt::format(R"({{"linear_num_key_heads": 2, "linear_num_value_heads": 4,
                         "linear_key_head_dim": 128, "linear_value_head_dim": 128{}}})",
                    taps);
    return gdn::problems_for_model(config).value().conv;
  };
  CHECK(conv("").width == 4);
  CHECK(conv(R"(, "linear_conv_kernel_dim": 3)").width == 3);
  CHECK(conv(R"(, "linear_conv_kernel_dim": 8)").check().message() ==
        "gdn_conv: width = 8; accepted: 2, 3, 4");
}

}  // namespace
}  // namespace cubinery
