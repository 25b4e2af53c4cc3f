#include "codegen/include_closure.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "codegen/identity.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

// Folders in memory: "0/a.h" is the file a.h of the first one.
using Tree = std::map<std::string, std::string>;

Result<IncludeClosure> closure_of(const Tree& tree, const std::string& source,
                                  const std::vector<std::string>& options = {}) {
  return include_closure(
      {.source = source, .path = "k.cu", .roots = {"r0", "r1", "r2"}, .options = options},
      [&](std::size_t root, const std::string& name) -> Result<std::shared_ptr<const IncludeFile>> {
        const auto file = tree.find(std::to_string(root) + "/" + name);
        if (file == tree.end()) return std::shared_ptr<const IncludeFile>();
        return std::make_shared<const IncludeFile>(
            IncludeFile{file->second, digest_of(file->second),
                        std::make_shared<const Directives>(file->second)});
      });
}

// What the compiler is given, as "name: text|"; or the error.
std::string given(const Tree& tree, const std::string& source,
                  const std::vector<std::string>& options = {}) {
  const Result<IncludeClosure> closure = closure_of(tree, source, options);
  if (!closure) return std::string(closure.error().message());
  std::string text;
  if (closure->source(source) != source) text = "source: " + closure->source(source) + "|";
  for (const auto& [name, header] : closure->headers())
    text.append(name).append(": ").append(header).append("|");
  return text;
}

TEST_CASE("HeadersHaveOneNameEach", "[cpu]") {
  struct Case {
    Tree tree;
    std::string source;
    std::string given;
  };
  const std::vector<Case> cases = {
      {{{"1/a.h", "A"}, {"2/a.h", "B"}}, "#include <a.h>", "a.h: A|"},
      {{{"0/a.h", "A"}}, "#include <./b/..//a.h>", "source: #include \"a.h\"|a.h: A|"},
      // Beside the file that includes, then in the folders.
      {{{"0/d/a.h", "#include \"b.h\""}, {"0/d/b.h", "B"}, {"0/b.h", "C"}},
       "#include \"d/a.h\"",
       "d/a.h: #include \"d/b.h\"|d/b.h: B|"},
      {{{"0/d/a.h", "#include \"b.h\""}, {"1/b.h", "C"}},
       "#include \"d/a.h\"",
       "b.h: C|d/a.h: #include \"b.h\"|"},
      {{{"0/d/a.h", "#include <b.h>"}, {"0/d/b.h", "B"}, {"0/b.h", "C"}},
       "#include \"d/a.h\"",
       "b.h: C|d/a.h: #include <b.h>|"},
      {{{"0/d/a.h", "#include \"../e/b.h\""}, {"0/e/b.h", "B"}},
       "#include <d/a.h>",
       "d/a.h: #include \"e/b.h\"|e/b.h: B|"},
      // A name that an earlier folder has too.
      {{{"0/b.h", "B"}, {"1/a.h", "#include \"b.h\"\n#include <b.h>"}, {"1/b.h", "C"}},
       "#include <a.h>",
       "<root 1>/b.h: C|a.h: #include \"<root 1>/b.h\"\n#include <b.h>|b.h: B|"},
      {{{"0/a.h", "#include_next <a.h>\n"}, {"1/a.h", "A"}},
       "#include <a.h>",
       "<root 1>/a.h: A|a.h: #include \"<root 1>/a.h\"\n|"},
      {{{"0/a.h", "#include_next <a.h>\n"}}, "#include <a.h>", "a.h: #include \"<absent>/a.h\"\n|"},
      // Conditions, comments, literals.
      {{{"0/a.h", "A"}}, "#if 0\n#include <a.h>\n#endif\n", "a.h: A|"},
      {{{"0/a.h", "A"}}, "// #include <a.h>\nauto s = R\"(\n#include <a.h>\n)\";", ""},
      {{{"0/d/a.h", "auto s = R\"(\n#include \"b.h\"\n)\";\n#include \"b.h\""}, {"0/d/b.h", "B"}},
       "#include <d/a.h>",
       "d/a.h: auto s = R\"(\n#include \"b.h\"\n)\";\n#include \"d/b.h\"|d/b.h: B|"},
      // A circle.
      {{{"0/a.h", "#include \"b.h\""}, {"0/b.h", "#include \"a.h\""}},
       "#include \"a.h\"",
       "a.h: #include \"b.h\"|b.h: #include \"a.h\"|"},
      // Questions count as directives.
      {{{"0/a.h", "A"}}, "#if __has_include(<a.h>)\n#endif", "a.h: A|"},
      {{{"0/d/a.h", "#if __has_include(\"b.h\")\n#endif"}, {"0/d/b.h", "B"}},
       "#include <d/a.h>",
       "d/a.h: #if __has_include(\"d/b.h\")\n#endif|d/b.h: B|"},
      {{{"0/a.h", "#if __has_include_next(<a.h>) || __has_include_next(<b.h>)\n#endif"},
        {"1/b.h", "B"}},
       "#include <a.h>",
       "a.h: #if 0 || __has_include(\"b.h\")\n#endif|b.h: B|"},
      {{{"0/a.h", "A"}}, "#define HAS(x) __has_include(x)\n#if HAS(<a.h>)\n#endif", "a.h: A|"},
      {{{"0/a.h", "A"}},
       "#define HAS(x) __has_include(x)\n#define F <a.h>\n#if HAS(F)\n#endif",
       "a.h: A|"},
  };
  for (const Case& test : cases) {
    INFO(test.source);
    CHECK(given(test.tree, test.source) == test.given);
  }
}

TEST_CASE("MacrosStandForAllOfTheirValues", "[cpu]") {
  const Tree tree = {{"0/a.h", "A"},
                     {"0/b.h", "B"},
                     {"0/d/x.h", "X"},
                     {"0/d/y.h", "Y"},
                     {"0/config.h", "#define LATE <b.h>\n"},
                     {"0/d/own.h", "#include OWN\n"}};
  struct Case {
    std::string source;
    std::string names;
  };
  for (const Case& test : std::vector<Case>{
           {"#define H \"a.h\"\n#include H\n", "a.h "},
           {"#if X\n#define H <a.h>\n#else\n#define H <b.h>\n#endif\n#include H\n", "a.h b.h "},
           {"#define D(n) <d/n>\n#include D(x.h)\n", "d/x.h "},
           {"#define R d\n#define F <R/x.h>\n#define G F\n#include G\n", "d/x.h "},
           {"#define N x\n#define N y\n#define D(n) <d/n.h>\n#include D(N)\n", "d/x.h d/y.h "},
           {"#define H <none.h>\n#include H\n", ""},
           // The definition is in a file that another macro leads to.
           {"#define CONFIG \"config.h\"\n#include LATE\n#include CONFIG\n", "b.h config.h "}}) {
    INFO(test.source);
    const Result<IncludeClosure> closure = closure_of(tree, test.source);
    REQUIRE(closure);
    std::string names;
    for (const auto& file : closure->files) names += file.name + " ";
    CHECK(names == test.names);
  }
  CHECK(given(tree, "#include H\n", {"-O3", "-DH=\"a.h\""}) == "a.h: A|");
  CHECK(given(tree, "#include H\n", {"--define-macro", "H=<b.h>"}) == "b.h: B|");
  CHECK(given(tree, "#define OWN \"x.h\"\n#include \"d/own.h\"\n") ==
        "r0/d/own.h:1: #include OWN: stands for \"x.h\", which is r0/d/x.h; accepted: a macro that "
        "stands for a name relative to the include folders");
}

// Sources and headers that want a file which no identity would cover.
TEST_CASE("WhatLeadsOutIsRefused", "[cpu]") {
  struct Case {
    std::string text;
    std::string why;
  };
  const std::string outside = "is no name relative to the include folders";
  const std::string out = "leads out of the include folders [r0, r1, r2]";
  const std::string macro = "names a file by a macro that may stand for any";
  for (const Case& test : std::vector<Case>{
           {"#include \"/etc/passwd\"", outside},
           {"#include </etc/passwd>", outside},
           {"#include \"<root 1>/a.h\"", outside},
           {"#import \"/etc/passwd\"", outside},
           {"%:include \"/etc/passwd\"", outside},
           {"#inc\\\nlude \"/etc/passwd\"", outside},
           {"#inc\\\r\nlude \"/etc/passwd\"", outside},
           {"R\\\n\"(/*)\";\n#include \"/etc/passwd\"", outside},
           {"#error don't /*\n#include \"/etc/passwd\" //*/", outside},
           {"/* */ # /* */ include /* */ \"/etc/passwd\"", outside},
           {"#include \"../../x.h\"", out},
           {"#include <../x.h>", out},
           {"#include \"a/../../x.h\"", out},
           {"#include X", macro},
           {"#include __FILE__", macro},
           {"#include", macro},
           {"#include <open", macro},
           {"#define E\n#include E \"a.h\" E", macro},
           {"#define C(a, b) a##b\n#define HX <a.h>\n#include C(H, X)", macro},
           {"#define H \"a\" \".h\"\n#include H", macro},
           {"#define H H\n#include H", macro},
           {"#define H \"/etc/passwd\"\n#include H", outside},
           {"#define R /etc\n#define F <R/passwd>\n#include F", outside},
           {"#include_next X", macro},
           {"#embed \"a.h\"", "embeds a file, whose changes would go unseen"},
           {"#if __has_embed(\"a.h\")\n#endif", "asks for a file to embed"},
           {"#if __has_include(\"/etc/passwd\")\n#endif", outside},
           {"#if 1 || __has_include ( <../x.h> )\n#endif", out},
           {"#if __has_include(X)\n#endif", macro},
           {"#define Q __has_include(X)", macro},
           {"#define P \"/etc/passwd\"\n#if __has_include(P)\n#endif", outside},
           {"#define HAS __has_include\n#if HAS(\"/etc/passwd\")\n#endif", outside},
           {"#define P \"/etc/passwd\"\n#define HAS __has_include\n#if HAS(P)\n#endif", outside},
           {"#define C(a, b) a##b\n#if C(__has_, include)(\"/etc/passwd\")\n#endif", outside}}) {
    INFO(test.text);
    const Result<IncludeClosure> of_source = closure_of({}, test.text);
    REQUIRE_FALSE(of_source);
    CHECK(of_source.error().code() == Code::kCompileFailed);
    CHECK_THAT(std::string(of_source.error().message()), ContainsSubstring(": " + test.why));
    const Result<IncludeClosure> of_header = closure_of({{"1/h.h", test.text}}, "#include <h.h>");
    REQUIRE_FALSE(of_header);
    CHECK_THAT(std::string(of_header.error().message()), Catch::Matchers::StartsWith("r1/h.h:"));
  }
  CHECK(given({}, "int x;\n\n#if 0\n#include X // why\n#endif") ==
        "k.cu:4: #include X: names a file by a macro that may stand for any; accepted: a name in "
        "quotes or angle brackets, of a file below the include folders, or a macro whose "
        "definitions all are such a name");
  CHECK(given({}, std::string("int x;\0", 7)) ==
        "k.cu: has a zero byte, with which compilers may read other directives than are seen; "
        "accepted: C++ text without");
  CHECK(
      given({}, "#inc\\ \t\nlude \"/etc/passwd\"").starts_with("k.cu: has a backslash and blanks"));
  CHECK(given({}, "#define A \\\r\n 1\n// \\ x\n").empty());
  CHECK(given({}, "?\?=include \"a.h\"").starts_with("k.cu: has trigraphs, "));
  CHECK(given({}, "// what?\?/\n#include \"/etc/passwd\"").starts_with("k.cu: has trigraphs, "));
}

TEST_CASE("ADirectiveThatCannotBeRenamedIsRefused", "[cpu]") {
  CHECK(given({{"0/d/a.h", "#include /* c */ \"b.h\""}, {"0/d/b.h", "B"}}, "#include <d/a.h>")
            .starts_with("r0/d/a.h:1: #include   \"b.h\": has to be given another name"));
}

TEST_CASE("ATreeThatMakesItselfEnds", "[cpu]") {
  std::size_t files = 0;
  const Result<IncludeClosure> closure = include_closure(
      {.source = "#include <0.h>", .path = "k.cu", .roots = {"r"}, .options = {}},
      [&](std::size_t, const std::string&) -> Result<std::shared_ptr<const IncludeFile>> {
        const std::string text = "#include <" + std::to_string(++files) + ".h>\n";
        return std::make_shared<const IncludeFile>(
            IncludeFile{text, digest_of(text), std::make_shared<const Directives>(text)});
      });
  REQUIRE_FALSE(closure);
  CHECK_THAT(std::string(closure.error().message()),
             Catch::Matchers::StartsWith("k.cu: includes more than 20000 files or 512 MiB"));
}

TEST_CASE("MacrosThatMultiplyAreRefusedSoon", "[cpu]") {
  // Each name stands for ten others, or for itself between brackets.
  std::string text = "#define F <A0/x.h>\n";
  for (int level = 0; level < 16; ++level) {
    for (int i = 0; i < 10; ++i) {
      const std::string next = std::to_string(level + 1);
      text += "#define A" + std::to_string(level) + " A" + next + "\n";
      text += "#define M" + std::to_string(level) + " M" + next + "\n";
    }
  }
  for (const char* include : {"#include F\n", "#include M0\n"}) {
    CHECK_THAT(given({}, text + include),
               ContainsSubstring("names a file by a macro that may stand for any"));
  }
}

TEST_CASE("TheDigestSeesWhatTheCompilerMay", "[cpu]") {
  const Tree tree = {{"0/a.h", "#include \"d/b.h\"\n#include <none.h>\n"},
                     {"0/d/b.h", "#include \"c.h\"\n"},
                     {"0/d/c.h", "C"},
                     {"0/unreached.h", "U"}};
  const std::string source = "#include <a.h>\n";
  const std::string digest = closure_of(tree, source)->digest;
  for (const char* reached : {"0/a.h", "0/d/b.h", "0/d/c.h"}) {
    INFO(reached);
    Tree other = tree;
    other[reached] += " ";
    CHECK(closure_of(other, source)->digest != digest);
    other.erase(reached);
    CHECK(closure_of(other, source)->digest != digest);
  }
  for (const char* appeared : {"0/none.h", "2/none.h"}) {
    INFO(appeared);
    Tree other = tree;
    other[appeared] = "";
    CHECK(closure_of(other, source)->digest != digest);
  }
  for (const char* unreached : {"0/unreached.h", "0/c.h", "1/a.h", "1/d/c.h"}) {
    INFO(unreached);
    Tree other = tree;
    other[unreached] += " ";
    CHECK(closure_of(other, source)->digest == digest);
  }
  // The same files in another folder, behind one that has none of them.
  Tree moved;
  for (const auto& [name, text] : tree) moved["1" + name.substr(1)] = text;
  CHECK(closure_of(moved, source)->digest == digest);
}

}  // namespace
}  // namespace cubinery
