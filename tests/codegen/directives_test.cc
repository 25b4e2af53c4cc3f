#include "codegen/directives.h"

#include <string>
#include <vector>

#include "tests/catch.h"

namespace cubinery {
namespace {

// The bodies of the directives, each behind the line that it begins on.
std::vector<std::string> directives_in(const std::string& text) {
  const Directives directives(text);
  std::vector<std::string> lines;
  for (const Directive& directive : directives.list()) {
    std::size_t line = 1;
    for (std::size_t i = 0; i < directive.at; ++i) line += text[i] == '\n' ? 1 : 0;
    lines.push_back(std::to_string(line) + " " + std::string(directives.body(directive, text)));
  }
  return lines;
}

TEST_CASE("DirectivesAreFoundWhereTheCompilerSeesThem", "[cpu]") {
  struct Case {
    std::string text;
    std::vector<std::string> found;
  };
  const std::vector<Case> cases = {
      {"#include <a>", {"1 include <a>"}},
      {"\n \t#\t include  \"a\" // why", {"2 include  \"a\""}},
      {"%:include <a>", {"1 include <a>"}},
      {"/* c */ # /* d */ include /* e */ <a>", {"1 include   <a>"}},
      {"#include <a//b> // c", {"1 include <a//b>"}},
      {"#include <a/*b> // c", {"1 include <a/*b>"}},
      {"/*\n*/ #include <a>", {"2 include <a>"}},
      {"#in\\\ncl\\\r\nude <a>\n#include <b>", {"1 include <a>", "4 include <b>"}},
      {"\\\n#include <a>", {"2 include <a>"}},
      {"// c \\\n#include <a>\n#include <b>", {"3 include <b>"}},
      {"#define A \\\n #include <a>", {"1 define A  #include <a>"}},
      {"#include \\\n<a>\n", {"1 include <a>"}},
      {"#include /* \n */ <a>\n#embed <b>", {"1 include   <a>", "3 embed <b>"}},
      {"#error don't /* c\n#include <a>", {"2 include <a>"}},
      {"#if 0\ndon't /* c\n#include <a>\n#endif", {"1 if 0", "3 include <a>"}},
      {"x = 1'000'000; // '\n#include <a>", {"2 include <a>"}},
      {"x = a_1'b' ;\n#include <a>", {"2 include <a>"}},
      {"c = '\"';\n#include <a>", {"2 include <a>"}},
      {"s = \"\\\"\";\n#include <a>", {"2 include <a>"}},
      {"R\"(/*)\"\n#include <a>", {"2 include <a>"}},
      {"R\\\n\"(/*)\"\n#include <a>", {"3 include <a>"}},
      {"R\"x(\n#include <a>\n)\" )x\"\n#include <b>", {"4 include <b>"}},
      {"#define X R\"(\n#include <a>\n)\"\n#include <b>",
       {"1 define X R\"(\n#include <a>\n)\"", "4 include <b>"}},
      {"int x; #include <a>", {}},
      {"int x; /*\n*/ #include <a>", {}},
      {"/* #include <a>\n#include <b> */", {}},
      {"/*/ #include <a>\n*/\n", {}},
      {"\"\\\n#include <a>\"", {}},
      {"#pragma once\n#line 3\n#ident \"x\"\n#includes <a>", {}},
      {"#", {}},
  };
  for (const Case& test : cases) {
    INFO(test.text);
    CHECK(directives_in(test.text) == test.found);
  }
}

TEST_CASE("APartOfADirectiveHasItsPlaceInTheText", "[cpu]") {
  const std::string text =
      "a\\\nb\r\n#include <x> // y\n#in\\\nclude <y>\n#include <z\\\nz>\n"
      "#include /* c */ <c>\n#include <d//d> /* e */";
  const Directives directives(text);
  REQUIRE(directives.list().size() == 5);
  std::vector<std::string> names;
  for (const Directive& directive : directives.list()) {
    const std::string_view body = directives.body(directive, text);
    const auto name = header_name(body, first_word(body).size());
    REQUIRE(name);
    const auto place = directives.place(directive, name->begin, name->length);
    names.push_back(place ? text.substr(place->first, place->second) : "in pieces");
  }
  CHECK(names == std::vector<std::string>{"<x>", "<y>", "in pieces", "in pieces", "<d//d>"});
}

TEST_CASE("TheFirstTokenEndsWhatComesBeforeIt", "[cpu]") {
  for (const auto& [text, before] : std::vector<std::pair<std::string, std::string>>{
           {"// c\n#include <a>\n\nint x;", "// c\n#include <a>\n\n"},
           {"#include <a>\n/* c */ ;", "#include <a>\n/* c */ "},
           {"#include <a>\n\"s\" int", "#include <a>\n"},
           {"#if 1\n#define X 1 /* c\n */\n#endif\n", "#if 1\n#define X 1 /* c\n */\n#endif\n"},
           {"x", ""},
           {"", ""}}) {
    INFO(text);
    CHECK(text.substr(0, Directives(text).first_token()) == before);
  }
}

TEST_CASE("QuestionsForFilesAreFound", "[cpu]") {
  CHECK(file_questions("if defined(__has_include)").empty());
  const auto questions = file_questions("if 1 && __has_include_next( <a b> ) || __has_include(X)");
  REQUIRE(questions.size() == 2);
  CHECK(questions[0].is_next);
  CHECK(questions[0].name->name == "a b");
  CHECK(questions[1].argument == "X");
  CHECK_FALSE(questions[1].name);
  CHECK(file_questions("define HAS __has_include")[0].argument.empty());
  CHECK(file_questions("if __has_embed(\"a\")")[0].is_embed);
}

}  // namespace
}  // namespace cubinery
