#include "runtime/jit/included_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::included_files_test {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

// Include folders with what write() puts into them.
class Folders {
 public:
  explicit Folders(const std::string& below = "") : path_(dir_.path() + below) {}
  std::string path(const std::string& name = "") const { return path_ + "/" + name; }
  std::vector<std::string> roots() const {
    return {path("cutlass"), path("toolkit"), path("toolkit/cccl")};
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    test::write_bytes(path(name), text);
  }
  void append(const std::string& name, const std::string& text) const {
    write(name, (fs::exists(path(name)) ? test::read_bytes(path(name)) : "") + text);
  }

 private:
  const TempDir dir_;
  const std::string path_;
};

// Shaped like CuTe: three folders, names beside and below, macros, questions, absent headers.
void write_tree(const Folders& folders) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"cutlass/cute/tensor.hpp",
       "#pragma once\n#include <cute/config.hpp>\n#include <cute/layout.hpp>\n"
       "#include <cute/arch/mma.hpp>\n"},
      {"cutlass/cute/config.hpp",
       "#if defined(__CUDACC_RTC__) || defined(__clang__)\n#define DEVICE __device__\n#else\n"
       "#include <cassert>\n#endif\n#include <cutlass/cutlass.h>\n"},
      {"cutlass/cute/layout.hpp",
       "#include \"cute/int_tuple.hpp\"\n#include CUDA_STD_HEADER(type_traits)\n"},
      {"cutlass/cute/int_tuple.hpp", "/* tuples */\n#include \"numeric/int.hpp\"\n"},
      {"cutlass/cute/numeric/int.hpp", "#include CUDA_STD_HEADER(cstdint)\n"},
      {"cutlass/cute/arch/mma.hpp",
       "#include \"mma_ext.hpp\" // beside\n#include \"../util/debug.hpp\"\n"},
      {"cutlass/cute/arch/mma_ext.hpp", "asm(\"# no directive\");\n#include <mma.h>\n"},
      {"cutlass/cute/util/debug.hpp", "#include <cuda_bf16.h>\n"},
      {"cutlass/cutlass/cutlass.h",
       "#define CUDA_STD_HEADER(header) <cuda/std/header>\n#include \"detail/macros.hpp\"\n"},
      {"cutlass/cutlass/detail/macros.hpp", "#define MACRO \\\n  1\n"},
      {"toolkit/cuda_bf16.h", "#include \"cuda_bf16.hpp\"\n#include \"vector_types.h\"\n"},
      {"toolkit/cuda_bf16.hpp", "struct bf16 {};\n"},
      {"toolkit/vector_types.h", "#include \"crt/host_defines.h\"\n"},
      {"toolkit/crt/host_defines.h", "#define HOST\n"},
      {"toolkit/mma.h", "#include \"crt/mma.h\"\n"},
      {"toolkit/crt/mma.h", "#include \"mma.hpp\"\n"},
      {"toolkit/crt/mma.hpp", "struct fragment {};\n"},
      {"toolkit/cccl/cuda/std/type_traits",
       "#define HAS(x) __has_include(x)\n#if HAS(<version>)\n#include <version>\n#endif\n"},
      {"toolkit/cccl/cuda/std/cstdint", "#include <cuda/std/detail/config.h>\n"},
      {"toolkit/cccl/cuda/std/detail/config.h", "#define CONFIG 1\n"},
      {"cutlass/cute/unreached.hpp", "int unreached;\n"},
      {"toolkit/cassert.txt", ""}};
  for (const auto& [name, text] : files) folders.write(name, text);
}

constexpr const char* kSource = "#include <cute/tensor.hpp>\n__global__ void k() {}\n";

Result<IncludeClosure> closure_of(const std::vector<std::string>& roots,
                                  const std::string& source = kSource, const Trust& trust = {}) {
  return IncludedFiles(trust).closure_of(
      {.source = source, .path = "k.cu", .roots = roots, .options = {}});
}

std::string questions_of(const Folders& folders) {
  return questions_text(closure_of(folders.roots()).value(), folders.roots().size());
}

std::string digest_in(const Folders& folders) {
  const Result<IncludeClosure> closure = closure_of(folders.roots());
  return closure ? closure->digest : std::string(closure.error().message());
}

TEST_CASE("EveryEditOfAReachedHeaderChangesTheDigest", "[cpu]") {
  struct Place {
    const char* file;
    const char* what;
  };
  const Place place = GENERATE(values<Place>({
      {"cutlass/cute/tensor.hpp", "// a comment\n"},
      {"cutlass/cute/config.hpp", "#define MORE\n"},
      {"cutlass/cute/layout.hpp", " "},
      {"cutlass/cute/int_tuple.hpp", "\n"},
      {"cutlass/cute/numeric/int.hpp", "int x;\n"},
      {"cutlass/cute/arch/mma.hpp", "int x;\n"},
      {"cutlass/cute/arch/mma_ext.hpp", "int x;\n"},
      {"cutlass/cute/util/debug.hpp", "int x;\n"},
      {"cutlass/cutlass/cutlass.h", "int x;\n"},
      {"cutlass/cutlass/detail/macros.hpp", "int x;\n"},
      {"toolkit/cuda_bf16.h", "int x;\n"},
      {"toolkit/cuda_bf16.hpp", "int x;\n"},
      {"toolkit/vector_types.h", "int x;\n"},
      {"toolkit/crt/host_defines.h", "int x;\n"},
      {"toolkit/mma.h", "int x;\n"},
      {"toolkit/crt/mma.hpp", "int x;\n"},
      {"toolkit/cccl/cuda/std/type_traits", "int x;\n"},
      {"toolkit/cccl/cuda/std/detail/config.h", "int x;\n"},
      // Files that appear: asked for, included in a branch, and in an earlier folder.
      {"toolkit/version", ""},
      {"cutlass/cassert", ""},
      {"cutlass/mma.h", "int other;\n"},
      {"cutlass/cute/cute/int_tuple.hpp", "int beside;\n"},
  }));
  const Folders folders;
  write_tree(folders);
  const std::string before = digest_in(folders);
  REQUIRE(before.size() == 32);
  IncludedFiles files;
  const std::string questions = questions_of(folders);
  REQUIRE(files.still_give(folders.roots(), questions));
  INFO(place.file);
  folders.append(place.file, place.what);
  const std::string after = digest_in(folders);
  CHECK(after.size() == 32);
  CHECK(after != before);
  CHECK_FALSE(files.still_give(folders.roots(), questions));
}

TEST_CASE("WhatIsNotReachedDoesNotChangeTheDigest", "[cpu]") {
  const Folders folders;
  write_tree(folders);
  const std::string before = digest_in(folders);
  const std::string questions = questions_of(folders);
  folders.append("cutlass/cute/unreached.hpp", "int x;\n");
  folders.append("cutlass/new.hpp", "int x;\n");
  folders.append("toolkit/cccl/cuda_bf16.h", "int behind;\n");
  fs::create_directories(folders.path("cutlass/cassert"));  // a folder is no file
  fs::last_write_time(folders.path("cutlass/cute/tensor.hpp"), fs::file_time_type());
  CHECK(digest_in(folders) == before);
  // Another place, another process's objects, and an order of folders that changes nothing.
  const Folders moved("/elsewhere and longer");
  write_tree(moved);
  CHECK(digest_in(moved) == before);
  IncludedFiles files;
  CHECK(files.still_give(folders.roots(), questions));
  CHECK(files.still_give(moved.roots(), questions));
  std::vector<std::string> roots = moved.roots();
  roots.insert(roots.begin(), "/nowhere");
  CHECK(closure_of(roots)->digest == before);
}

// Persistent: entries keep it.
TEST_CASE("TheQuestionsOfAClosureAreThisText", "[cpu]") {
  const Folders folders;
  folders.write("cutlass/a.h", "#include \"b.h\"\n#include <common/absent.h>\n");
  folders.write("toolkit/b.h", "int b;\n");
  const IncludeClosure closure = closure_of(folders.roots(), "#include <a.h>").value();
  CHECK(questions_text(closure, 3) ==
        "1 3 2dd0fb15f6bd2820c7d46a308937557a\n"
        "+ 0 a.h\n"
        "- 0 b.h\n"
        "+ 1 b.h\n"
        "- 0 common/absent.h\n"
        "- 1 common/absent.h\n"
        "- 2 common/absent.h\n"
        "- 3 common/absent.h\n");
}

TEST_CASE("QuestionsThatAreNoneAreNotAnswered", "[cpu]") {
  const Folders folders;
  write_tree(folders);
  IncludedFiles files;
  const std::string questions = questions_of(folders);
  std::vector<std::string> roots = folders.roots();
  for (std::size_t length = 0; length + 1 < questions.size(); ++length) {
    INFO(length);
    CHECK_FALSE(files.still_give(roots, questions.substr(0, length)));
  }
  for (const std::string& text :
       {"2" + questions.substr(1), questions + "+ 0 cute/tensor.hpp\n", questions + "\n",
        questions + "- 4 x\n", questions + "- -1 x\n", questions + "- 99999999999999999999 x\n",
        questions + "? 0 x\n", questions + "- 0x\n"}) {
    INFO(text.substr(questions.size() - 1));
    CHECK_FALSE(files.still_give(roots, text));
  }
  // Numbers of folders are other folders' now.
  roots.insert(roots.begin(), "/nowhere");
  CHECK_FALSE(files.still_give(roots, questions));
}

// What would be an error is no answer, not even where nothing was before.
TEST_CASE("AFileThatMayNotBeReadIsNotAbsent", "[cpu]") {
  const Folders folders;
  write_tree(folders);
  IncludedFiles files;
  const std::string questions = questions_of(folders);
  const std::string path = folders.path("toolkit/version");
  SECTION("others can write it") {
    folders.write("toolkit/version", "");
    REQUIRE(::chmod(path.c_str(), 0666) == 0);
  }
  SECTION("a pipe") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  CHECK_FALSE(files.still_give(folders.roots(), questions));
  fs::remove(path);
  CHECK(files.still_give(folders.roots(), questions));
  fs::create_directory(path);  // is no file
  CHECK(files.still_give(folders.roots(), questions));
}

TEST_CASE("LongFilesHaveTheDigestOfTheirWhole", "[cpu]") {
  const Folders folders;
  IncludedFiles files;
  for (const std::size_t size : {0u, 1u, 131071u, 131072u, 131073u, 1000000u}) {
    INFO(size);
    folders.write("cutlass/a.h", std::string(size, ' '));
    const IncludeClosure closure = closure_of(folders.roots(), "#include <a.h>").value();
    const std::string questions = questions_text(closure, folders.roots().size());
    CHECK(files.still_give(folders.roots(), questions));
    folders.append("cutlass/a.h", "x");
    CHECK_FALSE(files.still_give(folders.roots(), questions));
  }
}

TEST_CASE("AClosureWithANameThatIsNoTextIsNotKept", "[cpu]") {
  const Folders folders;
  const IncludeClosure closure = closure_of(folders.roots(), "#include <\xff.h>").value();
  CHECK(closure.absent == std::vector<std::string>{"\xff.h"});
  CHECK(questions_text(closure, 3).empty());
}

TEST_CASE("NoNameOfAHeaderHasAPath", "[cpu]") {
  const Folders folders;
  write_tree(folders);
  const Result<IncludeClosure> closure = closure_of(folders.roots());
  REQUIRE(closure);
  CHECK(closure->files.size() == 20);
  CHECK(closure->absent == std::vector<std::string>{"cassert", "version"});
  for (const auto& [name, text] : closure->headers()) {
    INFO(name);
    CHECK(name.front() != '/');
    CHECK(text.find(folders.path()) == text.npos);
  }
}

TEST_CASE("OneReaderSeesEdits", "[cpu]") {
  const Folders folders;
  write_tree(folders);
  IncludedFiles files;
  const IncludeQuery query{
      .source = kSource, .path = "k.cu", .roots = folders.roots(), .options = {}};
  const std::string before = files.closure_of(query)->digest;
  CHECK(files.closure_of(query)->digest == before);
  // Of the same length, at the same time.
  const std::string file = folders.path("toolkit/cuda_bf16.hpp");
  const auto time = fs::last_write_time(file);
  test::write_bytes(file, "struct bf17 {};\n");
  fs::last_write_time(file, time);
  CHECK(files.closure_of(query)->digest != before);
}

TEST_CASE("AHeaderThatOthersCanWriteIsRefused", "[cpu]") {
  const Folders folders;
  write_tree(folders);
  const std::string name =
      GENERATE("cutlass", "cutlass/cute", "cutlass/cute/arch", "toolkit/crt/mma.hpp");
  const std::string path = folders.path(name);
  REQUIRE(::chmod(path.c_str(), 0777) == 0);
  const Result<IncludeClosure> closure = closure_of(folders.roots());
  REQUIRE_FALSE(closure);
  CHECK(closure.error().code() == Code::kIo);
  CHECK(closure.error().message() ==
        "include: " + path +
            " can be written by other users, who could run code as us through it; chmod go-w, or "
            "set trust_shared_dirs (CUBINERY_TRUST=all)");
  CHECK(closure_of(folders.roots(), kSource, {.everybody = true}));
  const std::string questions = questions_text(
      closure_of(folders.roots(), kSource, {.everybody = true}).value(), folders.roots().size());
  CHECK_FALSE(IncludedFiles().still_give(folders.roots(), questions));
}

TEST_CASE("WhatALinkLeadsToMustBeTrusted", "[cpu]") {
  const Folders folders;
  write_tree(folders);
  const TempDir outside;
  const std::string target = outside.path() + "/config.hpp";
  fs::rename(folders.path("cutlass/cute/config.hpp"), target);
  const std::string before = [&] {
    fs::create_symlink(target, folders.path("cutlass/cute/config.hpp"));
    return digest_in(folders);
  }();
  CHECK(before.size() == 32);
  test::write_bytes(target, test::read_bytes(target) + "int x;\n");
  CHECK(digest_in(folders) != before);
  SECTION("others can write it") {
    REQUIRE(::chmod(target.c_str(), 0666) == 0);
    CHECK_THAT(digest_in(folders), ContainsSubstring("can be written by other users"));
  }
  SECTION("another user's") {
    if (::geteuid() != 0) return;
    REQUIRE(::chown(target.c_str(), 12345, 12345) == 0);
    CHECK_THAT(digest_in(folders), ContainsSubstring("belongs to user 12345"));
  }
}

TEST_CASE("AHeaderThatCannotBeReadIsAnError", "[cpu]") {
  const Folders folders;
  folders.write("cutlass/a.h", "");
  const std::string pipe = folders.path("cutlass/pipe.h");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const Result<IncludeClosure> closure = closure_of(folders.roots(), "#include <pipe.h>");
  REQUIRE_FALSE(closure);
  CHECK(closure.error().code() == Code::kIo);
  CHECK(closure.error().message() == "include: cannot read " + pipe + ": it is not a regular file");
  // Names that no file system has, and one below a file.
  const std::string longest(5000, 'x');
  std::string deepest;
  for (int i = 0; i < 1'000'000; ++i) deepest += "d/";
  deepest += "x.h";
  for (const std::string& name :
       std::vector<std::string>{longest, "a.h/b.h", "b/" + longest + "/c.h", deepest}) {
    const Result<IncludeClosure> absent = closure_of(folders.roots(), "#include <" + name + ">");
    REQUIRE(absent);
    CHECK(absent->absent == std::vector<std::string>{name});
  }
}

}  // namespace
}  // namespace cubinery::included_files_test
