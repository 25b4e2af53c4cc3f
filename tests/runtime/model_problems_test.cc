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

TEST_CASE("AModelHasAProblemForEachForm", "[cpu]") {
  const std::string config = config_of("Qwen3.5-27B");
  const gdn::ModelProblems problems = gdn::problems_for_model(config, 2).value();
  CHECK(problems.decode.heads.k == 8);
  CHECK(problems.decode.heads.v == 24);
  CHECK(problems.decode.check().ok());
  CHECK(problems.decode_with_conv.check().ok());
  CHECK(problems.prefill.varlen);
  CHECK(problems.prefill.check().ok());
  CHECK(problems.commit.varlen);
  CHECK(problems.commit.draft_tokens == problems.verify.draft_tokens);
  CHECK(problems.commit.check().ok());
  CHECK(problems.conv.heads.v == 24);
  CHECK(problems.conv.width == 4);
  CHECK(problems.conv.check().ok());
  CHECK(problems.conv_decode.check().ok());
  CHECK(problems.conv_verify.check().ok());
  CHECK(form_names() == std::vector<std::string>{"decode", "decode_with_conv", "prefill", "verify",
                                                 "commit", "conv", "conv_decode", "conv_verify"});
  const std::vector<Problem> of_forms = problems_for_model(config, 2).value();
  REQUIRE(of_forms.size() == model_forms().size());
  std::vector<std::string> operators;
  for (std::size_t i = 0; i < of_forms.size(); ++i) {
    CHECK(model_forms()[i].op == operator_of(of_forms[i]));
    if (operators.empty() || operators.back() != model_forms()[i].op) {
      operators.push_back(model_forms()[i].op);
    }
  }
  CHECK(operators == operator_names());
  CHECK(to_json(of_forms[5]) == problems.conv.to_json());
  CHECK(to_json(of_forms[6]) == problems.conv_decode.to_json());
  CHECK(to_json(of_forms[7]) == problems.conv_verify.to_json());
  CHECK(gdn::problems_for_model(config)->decode.to_json() ==
        gdn::problems_for_model(config, 1)->decode.to_json());
}

TEST_CASE("TheConvolutionsOfAModelDifferInWhatTheyStandInFrontOf", "[cpu]") {
  const gdn::ModelProblems problems = gdn::problems_for_model(config_of("Qwen3.5-27B"), 2).value();
  CHECK(problems.conv.varlen == problems.prefill.varlen);
  CHECK(problems.conv_verify.varlen == problems.verify.varlen);
  CHECK(problems.conv_verify.from_accepted == problems.verify.from_accepted);
  CHECK_FALSE(problems.conv_decode.varlen);
  gdn::ConvProblem packed = problems.conv_decode;
  packed.varlen = true;
  CHECK(packed.to_json() == problems.conv.to_json());
  packed.from_accepted = true;
  CHECK(packed.to_json() == problems.conv_verify.to_json());
}

TEST_CASE("ADecodeWithItsConvolutionIsTheTwoOfThem", "[cpu]") {
  const gdn::ModelProblems problems = gdn::problems_for_model(config_of("Qwen3.5-27B"), 2).value();
  const gdn::DecodeConv& conv = problems.decode_with_conv.conv;
  CHECK(conv.width == problems.conv_decode.width);
  CHECK(conv.activation == problems.conv_decode.activation);
  CHECK(conv.has_bias == problems.conv_decode.has_bias);
  CHECK(conv.weight_dtype == problems.conv_decode.weight_dtype);
  CHECK(conv.state_dtype == problems.conv_decode.states.dtype);
  CHECK(conv.state_layout == problems.conv_decode.states.layout);
  CHECK(conv.whole_window == problems.conv_decode.states.whole_window);
  gdn::DecodeProblem alone = problems.decode_with_conv;
  alone.conv = {};
  CHECK(alone.to_json() == problems.decode.to_json());
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
