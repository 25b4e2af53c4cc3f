#include "runtime/jit/template_source.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

// A folder of templates with what write() puts into it.
class Templates {
 public:
  const std::string& path() const { return dir_.path(); }
  void write(const std::string& name, const std::string& text) const {
    const fs::path file = fs::path(path()) / name;
    fs::create_directories(file.parent_path());
    test::write_bytes(file.string(), text);
  }

 private:
  TempDir dir_;
};

TemplateSource found(std::string_view kernel, const std::vector<std::string>& dirs) {
  Result<TemplateSource> source = find_template(kernel, dirs);
  REQUIRE(source);
  return std::move(*source);
}

Status refused(std::string_view kernel, const std::vector<std::string>& dirs) {
  Result<TemplateSource> source = find_template(kernel, dirs);
  REQUIRE_FALSE(source);
  return std::move(source).error();
}

TEST_CASE("WithoutFoldersTheTemplateIsTheEmbeddedOne", "[cpu]") {
  const TemplateSource source = found("gdn_decode", {});
  CHECK(source.path == "gdn_decode/gdn_decode.cu");
  CHECK(source.origin == "<embedded>/gdn_decode/gdn_decode.cu");
  CHECK(source.text == embedded_templates().at("gdn_decode/gdn_decode.cu"));
  TemplateFiles without_other_kernels = embedded_templates();
  std::erase_if(without_other_kernels, [](const auto& file) {
    return file.first.starts_with("gdn_") && !file.first.starts_with("gdn_decode/");
  });
  CHECK(source.files == without_other_kernels);
  CHECK(source.template_digest == digest_below(embedded_templates(), "gdn_decode/"));
  CHECK(source.headers_digest == headers_digest(embedded_templates()));
}

TEST_CASE("AFolderWinsOverTheLibrary", "[cpu]") {
  const Templates mine;
  mine.write("gdn_decode/gdn_decode.cu", "// mine\n");
  const TemplateSource embedded = found("gdn_decode", {});
  const TemplateSource source = found("gdn_decode", {mine.path()});
  CHECK(source.text == "// mine\n");
  CHECK(source.path == "gdn_decode/gdn_decode.cu");
  CHECK(source.origin == mine.path() + "/gdn_decode/gdn_decode.cu");
  CHECK(source.template_digest != embedded.template_digest);
  CHECK(source.headers_digest == embedded.headers_digest);
  // The other files of the template stay.
  CHECK(source.files.at("gdn_decode/key.h") == embedded.files.at("gdn_decode/key.h"));
}

TEST_CASE("TheFirstFolderWinsOverTheSecond", "[cpu]") {
  const Templates first;
  const Templates second;
  first.write("k/k.cu", "first");
  second.write("k/k.cu", "second");
  second.write("k/key.h", "key of the second");
  const TemplateSource source = found("k", {first.path(), second.path()});
  CHECK(source.text == "first");
  CHECK(source.origin == first.path() + "/k/k.cu");
  CHECK(source.files.at("k/key.h") == "key of the second");
  CHECK(found("k", {second.path(), first.path()}).text == "second");
}

TEST_CASE("SharedHeadersCanBeReplaced", "[cpu]") {
  const Templates mine;
  mine.write("common/math.cuh", "// mine\n");
  const TemplateSource embedded = found("gdn_decode", {});
  const TemplateSource source = found("gdn_decode", {mine.path()});
  CHECK(source.files.at("common/math.cuh") == "// mine\n");
  const std::string below = "#include \"common/tokens/key.h\"\n";
  mine.write("common/tokens/order.cuh", below);
  CHECK(found("gdn_decode", {mine.path()}).files.at("common/tokens/order.cuh") == below);
  CHECK(source.origin == embedded.origin);
  CHECK(source.template_digest == embedded.template_digest);
  CHECK(source.headers_digest != embedded.headers_digest);
}

TEST_CASE("TheDigestIsOfContentsNotOfPlaces", "[cpu]") {
  const Templates first;
  const Templates second;
  for (const Templates* dir : {&first, &second}) dir->write("k/k.cu", "same");
  CHECK(found("k", {first.path()}).template_digest == found("k", {second.path()}).template_digest);
  second.write("k/extra.cuh", "");
  CHECK(found("k", {first.path()}).template_digest != found("k", {second.path()}).template_digest);
}

TEST_CASE("OnlyDeviceFilesAreTaken", "[cpu]") {
  const Templates mine;
  mine.write("k/k.cu", "kernel");
  const std::string digest = found("k", {mine.path()}).template_digest;
  for (const char* name : {"k/fields.h", "k/k_ref.h", "k/README.md", "k/.hidden.h", "k/k.cu~",
                           "other/key.h", "top.h", "cubinery/dtype.h", "k/below/x.h"}) {
    mine.write(name, "text");
  }
  const TemplateSource source = found("k", {mine.path()});
  CHECK(source.template_digest == digest);
  CHECK(source.files.at("cubinery/dtype.h") == embedded_templates().at("cubinery/dtype.h"));
  for (const auto& [path, text] : source.files) {
    INFO(path);
    CHECK((path == "k/k.cu" || path.starts_with("common/") || path.starts_with("cubinery/")));
  }
}

TEST_CASE("ATemplateIsFoundByItsExactName", "[cpu]") {
  const Templates mine;
  mine.write("k/other.cu", "text");
  const Status status = refused("k", {mine.path(), "/nowhere"});
  CHECK(status.code() == Code::kInvalidKey);
  CHECK(status.message() ==
        "template: no k/k.cu in [" + mine.path() + ", /nowhere] or inside the library");
  CHECK(refused("gdn_decod", {}).message() ==
        "template: no gdn_decod/gdn_decod.cu in [] or inside the library");
  CHECK(refused("common", {}).code() == Code::kInvalidKey);
}

TEST_CASE("AFolderThatIsNotThereIsSkipped", "[cpu]") {
  CHECK(found("gdn_decode", {"/nowhere"}).origin.starts_with("<embedded>/"));
}

TEST_CASE("AKernelNameIsACIdentifier", "[cpu]") {
  const Templates mine;
  mine.write("x/x.cu", "text");
  for (const char* name :
       {"", "..", "../x", "x/x", "x.cu", "9x", "x-y", "x y", "x\n", "\xc3\xa9", "/x"}) {
    const Status status = refused(name, {mine.path()});
    CHECK(status.code() == Code::kInvalidKey);
    CHECK(status.message() ==
          "template: kernel name \"" + std::string(name) + "\" is not a C identifier");
  }
  CHECK(refused(std::string_view("x\0", 2), {mine.path()}).code() == Code::kInvalidKey);
}

TEST_CASE("AFileThatCannotBeReadIsAnError", "[cpu]") {
  const Templates mine;
  mine.write("k/k.cu", "text");
  fs::create_symlink("/nowhere/at/all.h", mine.path() + "/k/key.h");
  const Status status = refused("k", {mine.path()});
  CHECK(status.code() == Code::kIo);
  CHECK(status.message() ==
        "template: cannot read " + mine.path() + "/k/key.h: No such file or directory");

  const Templates folder;
  folder.write("k/k.cu", "text");
  fs::create_directory(folder.path() + "/k/key.h");
  const Status other = refused("k", {folder.path()});
  CHECK(other.code() == Code::kIo);
  CHECK(other.message() ==
        "template: cannot read " + folder.path() + "/k/key.h: it is not a regular file");
}

TEST_CASE("AFileThatNeverEndsIsAnError", "[cpu]") {
  const Templates mine;
  mine.write("k/k.cu", "text");
  const std::string path = mine.path() + "/k/key.h";
  SECTION("a named pipe that nobody writes to") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  SECTION("a device") { fs::create_symlink("/dev/zero", path); }
  CHECK(refused("k", {mine.path()}).message() ==
        "template: cannot read " + path + ": it is not a regular file");
}

TEST_CASE("AnIncludeThatNoIdentityCoversIsRefused", "[cpu]") {
  const Templates mine;
  mine.write("k/k.cu", "#include \"k/key.h\"\n");
  mine.write("k/key.h", "#define HEADER \"/opt/x.h\"\n#include HEADER\n");
  const Status status = refused("k", {mine.path()});
  CHECK(status.code() == Code::kCompileFailed);
  CHECK(status.message() ==
        "template: " + mine.path() +
            "/k/key.h: #include HEADER: may read a file outside the template folders, whose "
            "changes would go unseen; accepted: a name in quotes or angle brackets, "
            "\"<folder>/<file>\", no absolute path and no macro");
}

TEST_CASE("ATemplateThatOthersCanWriteIsRefused", "[cpu]") {
  const Templates mine;
  mine.write("k/k.cu", "text");
  mine.write("common/mine.cuh", "text");
  const std::string name = GENERATE("", "/k", "/k/k.cu", "/common", "/common/mine.cuh");
  const std::string path = mine.path() + name;
  REQUIRE(::chmod(path.c_str(), 0777) == 0);
  const Status status = refused("k", {mine.path()});
  CHECK(status.code() == Code::kIo);
  CHECK(status.message() == "template: " + path +
                                " can be written by other users, who could run code as us through "
                                "it; chmod go-w, or set trust_shared_dirs (CUBINERY_TRUST=all)");
  CHECK(find_template("k", {mine.path()}, {.everybody = true}));
  REQUIRE(::chmod(path.c_str(), 0755) == 0);
  CHECK(find_template("k", {mine.path()}));
}

TEST_CASE("AFolderThatCannotBeListedIsAnError", "[cpu]") {
  const Templates mine;
  mine.write("k", "a file where a folder is expected");
  const Status status = refused("k", {mine.path()});
  CHECK(status.code() == Code::kIo);
  CHECK(status.message() == "template: cannot list " + mine.path() + "/k: Not a directory");
}

TEST_CASE("EmptyFilesAreFiles", "[cpu]") {
  const Templates mine;
  mine.write("k/k.cu", "");
  CHECK(found("k", {mine.path()}).text.empty());
}

}  // namespace
}  // namespace cubinery
