// What readers of foreign text and describers of problems take of a thread's stack.
#include <string>

#include "codegen/read_json.h"
#include "runtime/registry/describe.h"
#include "runtime/registry/operators.h"
#include "tests/cache/small_stack.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::runtime_stack_test {
namespace {

TEST_CASE("DeepJsonIsAnErrorOnASmallStack", "[cpu]") {
  const char open = GENERATE('[', '{');
  std::string text;
  for (int i = 0; i < 100000; ++i) text += open == '[' ? "[" : R"({"a":)";
  std::string config = R"({"model_type": "qwen3_next", "deep": )" + text;
  bool read = true, parsed = true, planned = true;
  REQUIRE(test::on_small_stack([&] {
    read = read_json("text", text).has_value();
    parsed = parse_problem("gdn_decode", text).has_value();
    planned = problems_for_model(config, 1, {}).has_value();
  }));
  CHECK_FALSE(read);
  CHECK_FALSE(parsed);
  CHECK_FALSE(planned);
}

TEST_CASE("ProblemsAreReadAndDescribedOnASmallStack", "[cpu]") {
  const std::string config =
      test::read_bytes(CUBINERY_TEST_DIR "/data/models/Qwen3-Next-80B-A3B-Instruct/config.json");
  std::size_t operators = 0, good = 0, problems = 0;
  REQUIRE(test::on_small_stack([&] {
    operators = operator_descriptions().size();
    for (const std::string& op : operator_names()) good += parse_problem(op, "{}") ? 1u : 0u;
    const auto of_model = problems_for_model(config, 1, {});
    problems = of_model ? of_model->size() : 0;
  }));
  CHECK(operators == operator_names().size());
  CHECK(good == operators);
  CHECK(problems > 0);
}

}  // namespace
}  // namespace cubinery::runtime_stack_test
