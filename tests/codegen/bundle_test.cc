// The template files inside the library.
#include "codegen/bundle.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = fs::path(CUBINERY_TEST_DIR).parent_path();

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What #include lines of `text` name, with their quotes or brackets.
std::vector<std::string> includes_of(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    if (!line.starts_with("#")) continue;
    line.remove_prefix(1);
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    if (line.starts_with("include")) names.emplace_back(line.substr(line.find_first_of("\"<")));
  }
  return names;
}

const std::vector<std::string> kKernels{"gdn_commit",         "gdn_conv",         "gdn_decode",
                                        "gdn_prefill_chunks", "gdn_prefill_scan", "gdn_verify",
                                        "gdn_verify_wy"};

std::string digests(const TemplateFiles& files) {
  std::string text = headers_digest(files);
  for (const std::string& kernel : kKernels) text += digest_below(files, kernel + "/");
  return text;
}

TEST_CASE("EmbeddedFilesAreThoseOfTheTree", "[cpu]") {
  CHECK(embedded_templates().size() > 5);
  for (const auto& [path, text] : embedded_templates()) {
    INFO(path);
    const fs::path folder = path.starts_with("cubinery/") ? kRoot / "include" : kRoot / "templates";
    CHECK(text == text_of(folder / path));
  }
}

TEST_CASE("EveryDeviceFileOfTheTreeIsEmbedded", "[cpu]") {
  const fs::path templates = kRoot / "templates";
  for (const auto& entry : fs::recursive_directory_iterator(templates)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = fs::relative(entry.path(), templates).generic_string();
    INFO(path);
    CHECK(embedded_templates().contains(path) == is_device_file(entry.path().filename().string()));
  }
}

TEST_CASE("HostOnlyFilesAreNotDeviceFiles", "[cpu]") {
  for (const char* name : {"fields.h", "gdn_decode_ref.h", "README.md", "key.cc", "key", ""}) {
    INFO(name);
    CHECK_FALSE(is_device_file(name));
  }
  for (const char* name : {"key.h", "gdn_decode.cu", "vec.cuh", "my_fields.h", "reference.h"}) {
    INFO(name);
    CHECK(is_device_file(name));
  }
}

TEST_CASE("EveryIncludeOfADeviceFileIsInTheBundle", "[cpu]") {
  CHECK(includes_of("#include \"a\"\n  # include <b>\n// #include \"c\"\n") ==
        std::vector<std::string>{"\"a\"", "<b>"});
  for (const auto& [path, text] : embedded_templates()) {
    for (const std::string& name : includes_of(text)) {
      INFO(path << " includes " << name);
      // Brackets would be a toolkit's header, which no identity covers.
      REQUIRE(name.starts_with('"'));
      CHECK(embedded_templates().contains(name.substr(1, name.rfind('"') - 1)));
    }
  }
}

TEST_CASE("DigestsOfTheBuildAreThoseOfTheFiles", "[cpu]") {
  for (const auto& [path, text] : embedded_templates()) {
    const std::string kernel = path.substr(0, path.find('/'));
    if (!path.ends_with(".cu")) continue;
    INFO(kernel);
    const EmbeddedDigests* digests = embedded_digests(kernel);
    REQUIRE(digests != nullptr);
    CHECK(digests->own == digest_below(embedded_templates(), kernel + "/"));
    CHECK(digests->headers == headers_digest(embedded_templates()));
    CHECK(digests->code == code_digest(embedded_templates(), kernel));
  }
  CHECK(embedded_digests("gdn_decode") != nullptr);
  CHECK(embedded_digests("common") == nullptr);
}

TEST_CASE("DigestsSeeEveryName", "[cpu]") {
  for (const auto& [path, text] : embedded_templates()) {
    INFO(path);
    TemplateFiles files = embedded_templates();
    files.erase(path);
    CHECK(digests(files) != digests(embedded_templates()));
    const std::string folder = path.substr(0, path.find('/') + 1);
    files[folder + "renamed.h"] = text;
    CHECK(digests(files) != digests(embedded_templates()));
  }
}

TEST_CASE("DigestsSeeEveryByte", "[cpu]") {
  for (const auto& [path, text] : embedded_templates()) {
    INFO(path);
    for (const std::string& changed : {text + " ", text.substr(1), std::string()}) {
      TemplateFiles files = embedded_templates();
      files[path] = changed;
      CHECK(digests(files) != digests(embedded_templates()));
    }
  }
}

TEST_CASE("DigestsSeeWhereAFileEnds", "[cpu]") {
  CHECK(digest_below({{"k/a.h", "12"}, {"k/b.h", ""}}, "k/") !=
        digest_below({{"k/a.h", "1"}, {"k/b.h", "2"}}, "k/"));
  CHECK(digest_below({{"k/a.h", "1\nk/b.h 1:2"}}, "k/") !=
        digest_below({{"k/a.h", "1"}, {"k/b.h", "2"}}, "k/"));
}

// A kernel, what it includes on winding ways, and what it does not.
const TemplateFiles kFiles{
    {"k/k.cu", "#include \"k/key.h\"\n  # include\t\"common/a.cuh\"\n#include <cuda.h>\n"},
    {"k/key.h", "// \n#include \"cubinery/dtype.h\"\n#include \"k/absent.h\"\n#include \"cut"},
    {"k2/k2.cu", "#include \"common/b.cuh\"\n"},
    {"common/a.cuh", "\n#include \"common/deep.cuh\"\n//#include \"common/b.cuh\"\n"},
    {"common/b.cuh", "b"},
    {"common/deep.cuh", "#include \"common/a.cuh\"\n"},  // a circle
    {"common/deep.cuh2", "c"},
    {"cubinery/dtype.h", "d"}};

TEST_CASE("KernelDigestsSeeWhatTheKernelIncludes", "[cpu]") {
  const std::string digest = kernel_digest(kFiles, "k");
  CHECK(digest.size() == 32);
  for (const char* path :
       {"k/k.cu", "k/key.h", "common/a.cuh", "common/deep.cuh", "cubinery/dtype.h"}) {
    INFO(path);
    TemplateFiles files = kFiles;
    files[path] += " ";
    CHECK(kernel_digest(files, "k") != digest);
    files.erase(path);
    CHECK(kernel_digest(files, "k") != digest);
  }
  TemplateFiles files = kFiles;
  files["k/absent.h"] = "";
  CHECK(kernel_digest(files, "k") != digest);
}

TEST_CASE("KernelDigestsSeeNothingElse", "[cpu]") {
  const std::string digest = kernel_digest(kFiles, "k");
  for (const char* path : {"k2/k2.cu", "common/b.cuh", "common/deep.cuh2"}) {
    INFO(path);
    TemplateFiles files = kFiles;
    files[path] += " ";
    CHECK(kernel_digest(files, "k") == digest);
    files.erase(path);
    CHECK(kernel_digest(files, "k") == digest);
  }
  CHECK(kernel_digest(kFiles, "k2") != digest);
}

TEST_CASE("KernelDigestsOfTheLibrarySeeEveryFileThatTheyNeed", "[cpu]") {
  for (const auto& [path, text] : embedded_templates()) {
    INFO(path);
    TemplateFiles files = embedded_templates();
    files[path] += " ";
    int changed = 0;
    for (const std::string& kernel : kKernels) {
      changed += kernel_digest(files, kernel) != kernel_digest(embedded_templates(), kernel);
    }
    CHECK(changed > 0);
  }
}

TEST_CASE("DirectivesThatMayReadOtherFilesAreFound", "[cpu]") {
  for (const char* text : {"#include \"/opt/x.h\"",
                           "#include </opt/x.h>",
                           "int i;\n  #  include\t\"/opt/x.h\"\n",
                           "#include_next \"/opt/x.h\"",
                           "#include X",
                           "#include X(y)",
                           "#include",
                           "#embed \"/opt/x.h\"",
                           "#inc\\\nlude \"/opt/x.h\"",
                           "#inc\\\r\nlude \"/opt/x.h\"\r\n",
                           "/* a */ # /* b */ include /* c */ \"/opt/x.h\"",
                           "\v#\finclude \"/opt/x.h\"",
                           "%:include \"/opt/x.h\"",
                           "#if __has_include(\"/opt/x.h\")",
                           "#if 1 && __has_include ( </opt/x.h> )",
                           "#elif __has_include_next(\"/opt/x.h\")",
                           "#if __has_include(X)",
                           "#define HAS __has_include",
                           "#if __has_embed(\"/opt/x.h\")",
                           "#if __has_include(\"k/k.h\") && __has_include(X)",
                           "auto s = R\"(\n)\";\n#include \"/opt/x.h\"",
                           "auto s = R\"x( )\" )x\"; // \n#include \"/opt/x.h\"",
                           "int R; char c = '\"';\n#include X",
                           "#error don't\n#include X"}) {
    INFO(text);
    CHECK(outside_directive(text));
  }
  CHECK(outside_directive("#pragma once\n  #include X  // why\n") == "#include X");
}

TEST_CASE("OtherDirectivesAreLeftAlone", "[cpu]") {
  for (const char* text :
       {"#include \"k/k.h\"", "#include <cuda_fp16.h>", "#ifdef __has_include\n#endif",
        "#if defined(__has_include) && __has_include(<cuda.h>)", "#if defined __has_include",
        "// #include \"/opt/x.h\"", "/*\n#include \"/opt/x.h\"\n*/",
        "auto s = R\"(\n#include \"/opt/x.h\"\n)\";", "auto s = u8R\"x(\n#include X\n)\" )x\";",
        "auto s = \"#include X\";", "#define include X\n#pragma include X", "#includes X", "#"}) {
    INFO(text);
    CHECK_FALSE(outside_directive(text));
  }
  for (const auto& [path, text] : embedded_templates()) {
    INFO(path);
    CHECK_FALSE(outside_directive(text));
  }
}

TEST_CASE("DigestsOfAFolderSeeNoOther", "[cpu]") {
  const TemplateFiles files{{"k/a.h", "1"}};
  CHECK(digest_below(files, "k/") ==
        digest_below({{"k/a.h", "1"}, {"k2/a.h", "1"}, {"common/a.h", "1"}}, "k/"));
  CHECK(headers_digest(files) == headers_digest({}));
  CHECK(headers_digest({{"common/a.h", "1"}}) != headers_digest({{"cubinery/a.h", "1"}}));
}

TEST_CASE("CommentsAndBlankLinesAreNoCode", "[cpu]") {
  CHECK(without_comments("") == "");
  CHECK(without_comments("int a;") == "int a;\n");
  CHECK(without_comments("\n\n  int a;  // one\n\t\n/* two\nlines */int b;\n") ==
        "  int a;\n int b;\n");
  CHECK(without_comments("int a;/* never closed") == "int a;\n");
  CHECK(without_comments("x = y / z;") == "x = y / z;\n");
  // What looks like a comment in a literal is none.
  CHECK(without_comments(R"(s = "// no /* comment \\"; t)") == R"(s = "// no /* comment \\"; t)"
                                                               "\n");
  CHECK(without_comments("c = '\"'; // yes") == "c = '\"';\n");
  CHECK(without_comments("n = 1'000; // yes 'n") == "n = 1'000;\n");
  CHECK(without_comments("c = '\\''; // yes") == "c = '\\'';\n");
  const std::string raw = "s = R\"(// no comment)\";\n\n";
  CHECK(without_comments(raw) == raw);
}

TEST_CASE("ACommentDoesNotChangeTheDigestOfCode", "[cpu]") {
  TemplateFiles files = {{"k/k.cu", "#include \"common/a.h\"\nint k;\n"},
                         {"common/a.h", "int a;\n"},
                         {"common/b.h", "int b;\n"}};
  const std::string code = code_digest(files, "k");
  const std::string text = kernel_digest(files, "k");
  files["common/a.h"] = "// says what a is\n\nint a;\n";
  files["common/b.h"] = "int c;\n";
  CHECK(code_digest(files, "k") == code);
  CHECK(kernel_digest(files, "k") != text);
  files["common/a.h"] = "int a = 1;\n";
  CHECK(code_digest(files, "k") != code);
}

}  // namespace
}  // namespace cubinery
