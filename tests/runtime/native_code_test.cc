// Libraries that others could have written.
#include "runtime/jit/native_code.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "cubinery/context.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

using test::TempDir;

constexpr uid_t kOther = 12345;

// <temp>/program/nvidia/lib/libnvrtc.so.13, and a link to the folder of the library.
struct Place {
  const TempDir temp;
  const std::string program = temp.path() + "/program";
  const std::string folder = program + "/nvidia/lib";
  const std::string library = folder + "/libnvrtc.so.13";
  const std::string link = temp.path() + "/links/lib";

  Place() {
    fs::create_directories(folder);
    fs::create_directories(temp.path() + "/links");
    test::write_bytes(library, "code");
    fs::create_symlink("../program/nvidia/lib", link);
  }
};

std::string refusal(const std::string& path, const Trust& trust = {}) {
  return std::string(check_library(path, trust).message());
}

void set_mode(const std::string& path, mode_t mode) { REQUIRE(::chmod(path.c_str(), mode) == 0); }

TEST_CASE("ALibraryInFoldersOfOursMayBeLoaded", "[cpu]") {
  const Place place;
  CHECK(refusal(place.library).empty());
  CHECK(refusal(place.link + "/libnvrtc.so.13").empty());
  CHECK(refusal(place.program + "/../program/./nvidia//lib/libnvrtc.so.13").empty());
  CHECK(refusal(place.library + ".absent").empty());  // whoever opens it says so
  CHECK(refusal("/usr/bin/env").empty());
}

TEST_CASE("ALibraryThatOthersCanWriteIsNotLoaded", "[cpu]") {
  const Place place;
  const auto [name, mode] = GENERATE(table<std::string, mode_t>({
      {"/program/nvidia/lib/libnvrtc.so.13", 0666},
      {"/program/nvidia/lib", 0777},
      {"/program/nvidia/lib", 01777},
      {"/program/nvidia", 0757},
      {"/program", 0777},
      {"/program", 0775},
      {"", 0777},
  }));
  const std::string open_to_others = place.temp.path() + name;
  INFO(open_to_others << " " << mode);
  set_mode(open_to_others, mode);
  const std::string link = place.link + "/libnvrtc.so.13";
  for (const std::string& path : {place.library, link}) {
    CHECK(refusal(path).starts_with(open_to_others + " can be written by other users"));
    CHECK(refusal(path, {.everybody = true}).empty());
  }
}

// Nobody can put another folder in the place of one of ours there; /tmp itself is such a folder.
TEST_CASE("AStickyFolderAboveIsAsGoodAsWhatLeadsOnFromIt", "[cpu]") {
  const Place place;
  set_mode(place.program, 01777);
  CHECK(refusal(place.library).empty());
  if (::geteuid() != 0) {
    WARN("not root: chown is not tested");
    return;
  }
  REQUIRE(::chown((place.program + "/nvidia").c_str(), kOther, kOther) == 0);
  CHECK(refusal(place.library).starts_with(place.program + "/nvidia belongs to user 12345"));
}

TEST_CASE("ALinkOnTheWayIsChecked", "[cpu]") {
  const Place place;
  const std::string link = place.link + "/libnvrtc.so.13";
  const std::string links = place.temp.path() + "/links";
  set_mode(links, 0777);
  CHECK(refusal(link).starts_with(links + " can be written by other users"));
  CHECK(refusal(place.library).empty());
  set_mode(links, 0755);
  CHECK(refusal(link).empty());
  fs::create_symlink(links + "/loop", links + "/loop");
  CHECK(refusal(links + "/loop").empty());  // it cannot be opened
  if (::geteuid() != 0) {
    WARN("not root: chown is not tested");
    return;
  }
  set_mode(links, 01777);
  CHECK(refusal(link).empty());
  REQUIRE(::lchown(place.link.c_str(), kOther, kOther) == 0);
  CHECK(refusal(link).starts_with(place.link + " belongs to user 12345"));
}

TEST_CASE("ALibraryOfOthersIsNotLoaded", "[cpu]") {
  if (::geteuid() != 0) {
    WARN("not root: chown is not tested");
    return;
  }
  const Place place;
  const std::string others =
      place.temp.path() + GENERATE(as<std::string>(), "/program", "/program/nvidia/lib",
                                   "/program/nvidia/lib/libnvrtc.so.13");
  REQUIRE(::chown(others.c_str(), kOther, 2000) == 0);
  CHECK(refusal(place.library) == others +
                                      " belongs to user 12345, who could run code as us through "
                                      "it; set CUBINERY_TRUST=uid:12345 if that user is trusted");
  CHECK(refusal(place.library, {.users = {kOther}}).empty());
  CHECK(refusal(place.library, {.groups = {2000}}).empty());
  CHECK_FALSE(refusal(place.library, {.users = {kOther + 1}}).empty());
}

// As it is found: by its path.  One that the loader's search path leads to is the loader's choice.
TEST_CASE("AnNvrtcThatOthersCanWriteIsNotOpened", "[cpu]") {
  const Place place;
  fs::copy_file(CUBINERY_FAKE_NVRTC_99, place.library, fs::copy_options::overwrite_existing);
  const Options options{
      .device = kNoDevice, .arch = "sm_90a", .nvrtc_path = place.library, .use_disk_cache = false};
  const auto is_mapped = [&] {
    return test::read_bytes("/proc/self/maps").find(place.library) != std::string::npos;
  };
  set_mode(place.program, 0777);
  const Result<std::string> version = Context::create(options).value().nvrtc_version();
  REQUIRE_FALSE(version);
  const std::string text(version.error().message());
  INFO(text);
  CHECK(text.find(place.library + ": " + place.program + " can be written by other users") !=
        text.npos);
  CHECK(text.find("CUBINERY_TRUST=all") != text.npos);
  CHECK_FALSE(is_mapped());
  set_mode(place.program, 0755);
  (void)Context::create(options).value().nvrtc_version();
  CHECK(is_mapped());
}

}  // namespace
}  // namespace cubinery
