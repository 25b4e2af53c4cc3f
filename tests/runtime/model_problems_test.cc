// From a model's config.json to problems.  What each field becomes is tested with the command
// line's requests (tests/cli/model_config_test.cc), which are the same problems.
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

}  // namespace
}  // namespace cubinery
