// The views of a key, on a small key with one field of each kind.  gdn_decode_key_test.cc has the
// real one.
#include "cubinery/fields.h"

#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.h"
#include "tests/codegen/toy_key.h"

namespace cubinery {
namespace {

using toy::Colour;
using toy::ToyKey;

constexpr ToyKey kDefault{};
constexpr ToyKey kOther{
    .rows = 12, .dtype = DType::kBF16, .colour = Colour::kDeepBlue, .fast = true, .warps = 4};

// The message of the error; the code must be kInvalidKey.
std::string refusal(std::string_view json) {
  const Result<ToyKey> key = from_json<ToyKey>(json);
  REQUIRE_FALSE(key);
  CHECK(key.error().code() == Code::kInvalidKey);
  return std::string(key.error().message());
}

std::vector<std::string> candidates_of(const ToyKey& key) {
  std::vector<std::string> texts;
  for_each_candidate(key, [&](const ToyKey& candidate) { texts.push_back(canonical(candidate)); });
  return texts;
}

TEST_CASE("InitializersAreDesignatedAndQualified", "[cpu]") {
  CHECK(initializer(kDefault) ==
        "{.rows=4,.dtype=cubinery::DType::kF32,.colour=toy::Colour::kRed,.fast=false,.warps=2}");
  CHECK(initializer(kOther) ==
        "{.rows=12,.dtype=cubinery::DType::kBF16,.colour=toy::Colour::kDeepBlue,.fast=true,"
        ".warps=4}");
}

TEST_CASE("CanonicalTextsNameTheKernelAndEveryField", "[cpu]") {
  CHECK(canonical(kDefault) == "toy;rows=4;dtype=f32;colour=red;fast=false;warps=2");
  CHECK(canonical(kOther) == "toy;rows=12;dtype=bf16;colour=deep_blue;fast=true;warps=4");
}

TEST_CASE("JsonQuotesEnumerationsOnly", "[cpu]") {
  CHECK(to_json(kDefault) == R"({"rows":4,"dtype":"f32","colour":"red","fast":false,"warps":2})");
  CHECK(to_json(kOther) ==
        R"({"rows":12,"dtype":"bf16","colour":"deep_blue","fast":true,"warps":4})");
}

TEST_CASE("NegativeNumbersPrintAndParse", "[cpu]") {
  CHECK(canonical(ToyKey{.warps = -3}) == "toy;rows=4;dtype=f32;colour=red;fast=false;warps=-3");
  const Result<ToyKey> key = from_json<ToyKey>(R"({"warps":-3})");
  REQUIRE(key);
  CHECK(key->warps == -3);
}

TEST_CASE("AValueOutsideItsEnumerationIsNoNamedValue", "[cpu]") {
  const ToyKey key{.colour = static_cast<Colour>(3)};
  CHECK(canonical(key) == "toy;rows=4;dtype=f32;colour=?3;fast=false;warps=2");
  CHECK(initializer(key).find(".colour=?,") != std::string::npos);
  CHECK_FALSE(from_json<ToyKey>(to_json(key)));
}

TEST_CASE("EveryCandidateSurvivesJson", "[cpu]") {
  int count = 0;
  for_each_candidate(kOther, [&](const ToyKey& candidate) {
    const Result<ToyKey> parsed = from_json<ToyKey>(to_json(candidate));
    REQUIRE(parsed);
    CHECK(canonical(*parsed) == canonical(candidate));
    ++count;
  });
  CHECK(count == 5);
}

TEST_CASE("MissingFieldsKeepTheirDefault", "[cpu]") {
  const Result<ToyKey> none = from_json<ToyKey>("{}");
  REQUIRE(none);
  CHECK(canonical(*none) == canonical(kDefault));
  const Result<ToyKey> one = from_json<ToyKey>(R"( { "dtype" : "i64" } )");
  REQUIRE(one);
  CHECK(canonical(*one) == canonical(ToyKey{.dtype = DType::kI64}));
}

TEST_CASE("AnUnknownFieldIsRefused", "[cpu]") {
  CHECK(refusal(R"({"row":4})") ==
        "toy has no field \"row\"; accepted: rows, dtype, colour, fast, warps; did you mean rows?");
}

TEST_CASE("AWrongValueIsRefusedWithWhatIsAccepted", "[cpu]") {
  CHECK(refusal(R"({"colour":"green"})") == "toy: field colour = green; accepted: red, deep_blue");
  CHECK(refusal(R"({"colour":"kRed"})") == "toy: field colour = kRed; accepted: red, deep_blue");
  CHECK(refusal(R"({"colour":1})") == "toy: field colour = 1; accepted: red, deep_blue");
  CHECK(refusal(R"({"fast":1})") == "toy: field fast = 1; accepted: true, false");
  for (const char* value : {"4.0", "1e2", "\"four\"", "\"\"", "\" 4\"", "true", "99999999999"}) {
    const std::string text = refusal(R"({"rows":)" + std::string(value) + "}");
    INFO(text);
    CHECK(text.starts_with("toy: field rows = "));
    CHECK(text.ends_with("; accepted: an integer"));
  }
}

TEST_CASE("ARepeatedFieldIsRefused", "[cpu]") {
  CHECK(refusal(R"({"rows":4,"warps":1,"rows":5})") ==
        "toy: \"rows\" twice in one object at column 26");
}

TEST_CASE("NestedAndNullValuesAreRefused", "[cpu]") {
  const std::string accepted = "; accepted: a string, a number or a boolean";
  CHECK(refusal(R"({"rows":{"a":1}})") == "toy: field rows = {\"a\":1}" + accepted);
  CHECK(refusal(R"({"warps":1,"rows":[[4]]})") == "toy: field rows = [[4]]" + accepted);
  CHECK(refusal(R"({"rows":null})") == "toy: field rows = null" + accepted);
  // Deep enough to overflow the stack of whoever recurses.
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  CHECK(refusal(R"({"rows":)" + deep + "}") ==
        "toy: arrays and objects more than 64 deep at column 72");
  CHECK(refusal(deep) == "toy: arrays and objects more than 64 deep at column 65");
}

TEST_CASE("TextThatIsNoJsonObjectIsRefused", "[cpu]") {
  for (const char* text : {"4", "\"rows\"", "[]", "null"}) {
    CHECK(refusal(text) == "toy: not a JSON object: " + std::string(text));
  }
  for (const char* text : {"", " ", "{", "{\"rows\":4", "{\"rows\"}", "{rows:4}", "{\"rows\":4} x",
                           "{}{}", "{\"rows\":4,}", "{\"rows\":04}", "{\"rows\":\"\xff\"}"}) {
    CHECK(refusal(text).starts_with("toy: not JSON at column "));
  }
  CHECK(refusal("{\"rows\":1e999}") == "toy: a number that no double holds at column 13");
}

TEST_CASE("AMessageQuotesNoMoreThanItMust", "[cpu]") {
  CHECK(refusal(R"({")" + std::string(1000, 'r') + R"(":4})")
            .starts_with("toy has no field \"" + std::string(160, 'r') + "...\"; accepted: "));
  CHECK(refusal(R"({"rows":")" + std::string(1000, 'v') + R"("})")
            .starts_with("toy: field rows = " + std::string(160, 'v') + "...; accepted: "));
}

TEST_CASE("AKeyOutsideItsRulesIsRefusedWithTheRule", "[cpu]") {
  CHECK(refusal(R"({"rows":0})") ==
        "rows must be positive; key: toy;rows=0;dtype=f32;colour=red;fast=false;warps=2");
}

TEST_CASE("CandidatesAreTheProductOfChoicesLastFieldFastest", "[cpu]") {
  const std::string fixed_part = "toy;rows=12;dtype=bf16;colour=deep_blue;";
  CHECK(candidates_of(kOther) == std::vector<std::string>{fixed_part + "fast=false;warps=1",
                                                          fixed_part + "fast=false;warps=4",
                                                          fixed_part + "fast=false;warps=8",
                                                          fixed_part + "fast=true;warps=1",
                                                          fixed_part + "fast=true;warps=4"});
}

TEST_CASE("AFieldOutsideItsChoicesIsNotEnumerated", "[cpu]") {
  // kDefault has 2 warps, which is no choice.
  for (const std::string& text : candidates_of(kDefault)) CHECK_FALSE(text.ends_with("warps=2"));
}

TEST_CASE("AnInvalidProblemHasNoCandidates", "[cpu]") {
  CHECK(candidates_of(ToyKey{.rows = 0}).empty());
}

TEST_CASE("TheSpecHoldsWhatTheRuntimeNeeds", "[cpu]") {
  const Result<KernelSpec> spec = spec_of(kOther);
  REQUIRE(spec);
  CHECK(spec->kernel == "toy");
  CHECK(spec->canonical == canonical(kOther));
  CHECK(spec->initializer == initializer(kOther));
  CHECK(spec->threads == 128);
  CHECK(spec->shared_bytes == 12 * 16);
  CHECK(spec->param_bytes == sizeof(toy::ToyParams));

  const Result<KernelSpec> invalid = spec_of(ToyKey{.rows = -1});
  REQUIRE_FALSE(invalid);
  CHECK(invalid.error().code() == Code::kInvalidKey);
  CHECK(invalid.error().message() ==
        "rows must be positive; key: toy;rows=-1;dtype=f32;colour=red;fast=false;warps=2");
}

}  // namespace
}  // namespace cubinery
