// What is said of the operators' problems is what they take.
#include "runtime/registry/describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "runtime/registry/operators.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using Json = nlohmann::ordered_json;

TEST_CASE("TheFieldsAndDefaultsAreThoseOfTheProblems", "[cpu]") {
  const Json operators = Json::parse(operators_json());
  REQUIRE(operators.size() == operator_names().size());
  for (std::size_t i = 0; i < operators.size(); ++i) {
    CHECK(operators[i]["op"] == operator_names()[i]);
    Json defaults = Json::object();
    for (const Json& field : operators[i]["fields"]) {
      defaults[field["name"].get<std::string>()] = field["default"];
    }
    CHECK(defaults.dump() == to_json(default_problem(operator_names()[i])));
  }
}

TEST_CASE("TheSizesAreThoseOfAChoice", "[cpu]") {
  std::string text;
  for (const OperatorDescription& op : operator_descriptions()) {
    text += op.name;
    for (const NumberDescription& size : op.args.sizes) {
      CHECK(size.type == "integer");
      CHECK_FALSE(size.doc.empty());
      text.append(" ").append(size.name);
    }
    text += '\n';
  }
  CHECK(text ==
        "gdn_decode batch\ngdn_prefill tokens sequences max_seqlen\ngdn_verify requests tokens\n"
        "gdn_commit layers requests\ngdn_conv sequences tokens channels\n");
}

TEST_CASE("TheDtypeOfATensorIsAFieldOrADtype", "[cpu]") {
  const std::set<std::string_view> dtypes{"f32", "i32", "i64", "bool"};
  for (const OperatorDescription& op : operator_descriptions()) {
    CHECK(op.args.positional > 0);
    CHECK(std::any_of(op.args.numbers.begin(), op.args.numbers.end(),
                      [](const auto& number) { return number.name == "enable_pdl"; }));
    for (const TensorDescription& tensor : op.args.tensors) {
      INFO(op.name << ": " << tensor.name << " " << tensor.shape);
      const bool is_field = std::any_of(op.fields.begin(), op.fields.end(),
                                        [&](const auto& f) { return f.name == tensor.dtype; });
      CHECK((is_field || dtypes.contains(tensor.dtype)));
      CHECK(tensor.shape.starts_with('['));
      CHECK(tensor.shape.find("[]") == std::string::npos);
    }
  }
}

// Calls f(op, field) for every field with choices.
template <class Function>
void for_each_choice_field(const Function& f) {
  for (const OperatorDescription& op : operator_descriptions()) {
    for (const FieldDescription& field : op.fields) {
      if (!field.choices.empty()) f(op, field);
    }
  }
}

TEST_CASE("TheChoicesAreWhatAFieldTakes", "[cpu]") {
  std::set<std::string> texts;
  for_each_choice_field([&](const auto&, const FieldDescription& field) {
    texts.insert(field.choices.begin(), field.choices.end());
  });
  for_each_choice_field([&](const OperatorDescription& op, const FieldDescription& field) {
    for (const std::string& text : texts) {
      Json object{{"state_location", "pool"}};                // which indices need
      if (op.name == "gdn_conv") object["split_qkv"] = true;  // and gates
      object[std::string(field.name)] = text;
      INFO(object.dump());
      const bool is_choice = std::count(field.choices.begin(), field.choices.end(), text) == 1;
      const Result<Problem> problem = parse_problem(op.name, object.dump());
      CHECK((problem && check(*problem).ok()) == is_choice);
    }
  });
}

}  // namespace
}  // namespace cubinery
