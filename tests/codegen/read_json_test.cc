#include "codegen/read_json.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.h"

namespace cubinery::read_json_test {
namespace {

std::string refusal(const std::string& text, const JsonLimits& limits = {}) {
  const Result<Json> read = read_json("file.json", text, limits);
  if (read) return "";
  CHECK(read.error().code() == Code::kInvalidArgument);
  return std::string(read.error().message());
}

std::string repeated(std::string_view part, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += part;
  return text;
}

std::string nested(std::size_t depth) { return repeated("[", depth) + repeated("]", depth); }

// {"m0":0,"m1":1,...}
std::string object_of(std::size_t members) {
  std::string text = "{";
  for (std::size_t i = 0; i < members; ++i) {
    text += (i == 0 ? "\"m" : ",\"m") + std::to_string(i) + "\":" + std::to_string(i);
  }
  return text + "}";
}

TEST_CASE("Json.ValuesComeAsTheyStand", "[cpu]") {
  const std::string text =
      R"({"b":[1,-2,2.5,true,null,"x\u00e9\n"],"a":{"z":{},"y":[]},"c":18446744073709551615})";
  const Result<Json> read = read_json("", text);
  REQUIRE(read);
  CHECK(read->dump() == Json::parse(text).dump());
  CHECK(read->begin().key() == "b");
  CHECK((*read)["c"].get<std::uint64_t>() == 18446744073709551615u);
  for (const char* scalar : {"4", " \"x\" ", "null", "-0.5e-3", "\xef\xbb\xbf[]"}) {
    CHECK(refusal(scalar).empty());
  }
}

TEST_CASE("Json.PythonsNumbersAreReadWhereTheyAreAskedFor", "[cpu]") {
  const Result<Json> read =
      read_python_json("", R"({"a":[NaN,Infinity,-Infinity],"b":"NaN, -Infinity","c":-1})");
  REQUIRE(read);
  CHECK(std::isnan((*read)["a"][0].get<double>()));
  CHECK((*read)["a"][1].get<double>() == std::numeric_limits<double>::infinity());
  CHECK((*read)["a"][2].get<double>() == -std::numeric_limits<double>::infinity());
  CHECK((*read)["b"] == "NaN, -Infinity");
  CHECK(json_excerpt((*read)["a"][2]) == "-Infinity");
  CHECK(json_excerpt((*read)["a"][0]) == "NaN");
  // The places of what is wrong are those of the text.
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"[Infinity, x]", "not JSON at column 12"},
           {"[NaN\n,\n]", "not JSON at line 3, column 1"},
           {"{NaN:1}", "not JSON at column 4"},
           {"[NaNs]", "not JSON at column 2"},
           {"[--Infinity]", "not JSON at column 3"},
           {"[\"\x7f\", NaN]", "not JSON at column 7"},
           {"[NaN", "not JSON at column 5"}}) {
    INFO(text);
    CHECK(read_python_json("", text).error().message() == message);
  }
  CHECK(read_python_json("", "[\"\x7f\"]").value()[0] == "\x7f");
}

TEST_CASE("Json.WhatIsNoJsonIsRefusedWithItsPlace", "[cpu]") {
  CHECK(refusal("") == "file.json: not JSON at column 1");
  CHECK(refusal("[{]") == "file.json: not JSON at column 3");
  CHECK(refusal("{}{}") == "file.json: not JSON at column 3");
  CHECK(refusal("{\n  \"a\": 1,\n  \"b\"; 2\n}") == "file.json: not JSON at line 3, column 6");
  CHECK(refusal("\"\xff\"") == "file.json: not JSON at column 2");  // not UTF-8
  CHECK(refusal(std::string("[\0]", 3)) == "file.json: not JSON at column 2");
  for (const char* text :
       {"{", "[1,]", "{\"a\"}", "{a:1}", "01", "NaN", "'x'", "// no\n1", "\"\n\""}) {
    INFO(text);
    CHECK(refusal(text).starts_with("file.json: not JSON at "));
  }
  CHECK(read_json("", "x").error().message() == "not JSON at column 1");
}

TEST_CASE("Json.ANumberBeyondDoubleIsRefused", "[cpu]") {
  CHECK(refusal("1e999") == "file.json: a number that no double holds at column 5");
  CHECK(refusal("{\"a\":\n -1e400}") ==
        "file.json: a number that no double holds at line 2, column 7");
  CHECK(refusal("1e308").empty());
  CHECK(refusal("1e-999").empty());  // 0
}

TEST_CASE("Json.ANameStandsOnceInAnObject", "[cpu]") {
  CHECK(refusal(R"({"a":1,"b":{"a":2},"a":3})") ==
        "file.json: \"a\" twice in one object at column 22");
  CHECK(refusal(R"([{"a":1},{"a":1}])").empty());
  CHECK(refusal(R"({"a":1,"\u0061":2})") == "file.json: \"a\" twice in one object at column 15");
}

TEST_CASE("Json.ThereAreLimits", "[cpu]") {
  CHECK(refusal(nested(64)).empty());
  CHECK(refusal(nested(65)) == "file.json: arrays and objects more than 64 deep at column 65");
  CHECK(refusal(repeated("{\"a\":", 1'000'000)) ==
        "file.json: arrays and objects more than 64 deep at column 321");
  CHECK(refusal(object_of(4096)).empty());
  CHECK(
      refusal(object_of(20'000)).starts_with("file.json: an object of more than 4096 members at "));
  const JsonLimits small{.bytes = 10, .depth = 1, .members = 2, .values = 4};
  CHECK(refusal("[1,2,3]", small).empty());
  CHECK(refusal("[1,2,3,4]", small) == "file.json: more than 4 values at column 9");
  CHECK(refusal("[      ]  ", small).empty());
  CHECK(refusal("[       ]  ", small) == "file.json: 11 bytes of JSON; accepted: at most 10");
  CHECK(refusal("[[]]", small) == "file.json: arrays and objects more than 1 deep at column 2");
}

// Whoever looks through all members for each new one takes seconds.
TEST_CASE("Json.ManyMembersAreRead", "[cpu]") {
  constexpr std::size_t kMany = 200'000;
  const Result<Json> read = read_json("", object_of(kMany), {.members = kMany});
  REQUIRE(read);
  CHECK(read->size() == kMany);
  CHECK(std::prev(read->end()).key() == "m199999");
}

TEST_CASE("Json.MessagesTakeOnlySoMuch", "[cpu]") {
  CHECK(excerpt("short") == "short");
  CHECK(excerpt(std::string(160, 'a')) == std::string(160, 'a'));
  CHECK(excerpt(std::string(161, 'a')) == std::string(160, 'a') + "...");
  CHECK(excerpt(std::string(159, 'a') + "\xc3\xa9") == std::string(159, 'a') + "...");
  CHECK(excerpt(std::string(500, '\x80')).size() <= 163);  // no UTF-8 at all
  CHECK(json_excerpt(Json{{"a", "\xff"}}) == "{\"a\":\"\xef\xbf\xbd\"}");
  CHECK(json_excerpt(Json(std::string(1000, 'a'))) == "\"" + std::string(159, 'a') + "...");
}

}  // namespace
}  // namespace cubinery::read_json_test
