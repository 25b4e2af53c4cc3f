#include "cache/cubin_note.h"

#include <string>
#include <vector>

#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

// Made by NVRTC 13.0.88 from `__global__ void trivial(float* x) { x[threadIdx.x] *= 2.0f; }`; with
// a name by 12.8.93 and 12.9.86, without the note but for sm_100a.
std::string trivial_cubin(const std::string& name = "sm_90a") {
  return test::read_bytes(CUBINERY_TEST_DIR "/golden/trivial_" + name + ".cubin");
}

// From a heap block of exactly that size, so that a sanitizer sees any read past the end.
std::optional<CubinNote> read_exactly(std::string_view bytes) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  return read_cubin_note({copy.data(), copy.size()});
}

void put(std::string* bytes, std::size_t offset, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    (*bytes)[offset + i] = static_cast<char>(value >> (8 * i));
  }
}

std::string u32(std::uint64_t value) {
  std::string bytes(4, '\0');
  put(&bytes, 0, value, 4);
  return bytes;
}

std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + 3) / 4 * 4, '\0');
  return bytes;
}

std::string make_note(const std::string& vendor, std::uint32_t type, const std::string& version,
                      const std::string& command_line) {
  const std::string strings = std::string("\0ptxas\0", 7) + version + '\0' + command_line + '\0';
  const std::size_t command_offset = 7 + version.size() + 1;
  const std::string descriptor =
      u32(2) + u32(0) + u32(1) + u32(7) + u32(0) + u32(command_offset) + strings;
  return u32(vendor.size() + 1) + u32(descriptor.size()) + u32(type) + padded(vendor + '\0') +
         padded(descriptor);
}

// An ELF file of three sections: none, names, notes.
std::string make_cubin(const std::string& notes) {
  const std::string names("\0.note.nv.tkinfo\0", 17);
  std::string cubin(64 + 3 * 64, '\0');
  cubin.replace(0, 6,
                "\x7f"
                "ELF\x02\x01");
  put(&cubin, 18, 190, 2);
  put(&cubin, 40, 64, 8);  // section headers
  put(&cubin, 58, 64, 2);
  put(&cubin, 60, 3, 2);
  put(&cubin, 62, 1, 2);
  put(&cubin, 128 + 24, cubin.size(), 8);
  put(&cubin, 128 + 32, names.size(), 8);
  put(&cubin, 192, 1, 4);
  put(&cubin, 192 + 24, cubin.size() + names.size(), 8);
  put(&cubin, 192 + 32, notes.size(), 8);
  return cubin + names + notes;
}

constexpr const char* kVersion = "Cuda compilation tools, release 12.8, V12.8.93";

TEST_CASE("ARealCubinNamesItsArchitectureAndCompiler", "[cache]") {
  const std::optional<CubinNote> note = read_cubin_note(trivial_cubin());
  REQUIRE(note);
  CHECK(note->arch == "sm_90a");
  CHECK(note->compiler == "13.0.88");
}

// What a cubin says, and the version that made it.
struct Cuda12 {
  std::string name;
  std::string arch;
  std::string compiler;
  std::string version;
};
const std::vector<Cuda12> kCuda12 = {{"sm_90a_12.8", "sm_90a", "12.8", "12.8.93"},
                                     {"sm_90a_12.9", "sm_90a", "12.9", "12.9.86"},
                                     {"sm_100a_12.8", "sm_100a", "12.8.93", "12.8.93"}};

TEST_CASE("ACubinOfCuda12NamesAsMuchAsItHas", "[cache]") {
  const auto [name, arch, compiler, version] = GENERATE(from_range(kCuda12));
  const std::string cubin = trivial_cubin(name);
  const std::optional<CubinNote> note = read_exactly(cubin);
  REQUIRE(note);
  CHECK(note->arch == arch);
  CHECK(note->compiler == compiler);
  CHECK(note->has_build == (compiler == version));
  CHECK_FALSE(wrong_cubin(cubin, arch, version));
  const std::optional<KernelParameters> parameters = read_parameters(cubin, "trivial");
  REQUIRE(parameters);
  CHECK(parameters->count == 1);
  CHECK(parameters->bytes == 8);
}

TEST_CASE("ACubinWithoutTheNoteIsOfItsToolkitAndArchitectureOnly", "[cache]") {
  const std::string cubin = trivial_cubin("sm_90a_12.8");
  CHECK_FALSE(wrong_cubin(cubin, "sm_90a", "12.8.61"));  // another build: it does not say
  for (const std::string version : {"12.9.86", "13.0.88", "12.80.1", "12.8", "12", "2.8.93", ""}) {
    CHECK(wrong_cubin(cubin, "sm_90a", version) ==
          "the cubin is from compiler 12.8, its entry says " + version);
  }
  for (const std::string arch : {"sm_90", "sm_80", "sm_100a", ""}) {
    CHECK(wrong_cubin(cubin, arch, "12.8.93") == "the cubin is for sm_90a, its entry says " + arch);
  }
  CHECK(wrong_cubin(trivial_cubin("sm_100a_12.8"), "sm_100a", "12.8.61") ==
        "the cubin is from compiler 12.8.93, its entry says 12.8.61");
}

// Of the form that cubins of CUDA 13 have, and of CUDA 12 for sm_100 and newer.
TEST_CASE("WhereTheNoteBelongsItIsNeeded", "[cache]") {
  for (const std::string name : {"sm_90a", "sm_100a_12.8"}) {
    std::string cubin = trivial_cubin(name);
    for (std::size_t at = 0; (at = cubin.find(".note.nv.tkinfo", at)) != cubin.npos; ++at) {
      cubin[at + 1] = 'N';
    }
    CHECK(wrong_cubin(cubin, "sm_90a", "13.0.88") == "the cubin has no compiler note");
    CHECK(wrong_cubin(cubin, "sm_100a", "12.8.93") == "the cubin has no compiler note");
  }
}

TEST_CASE("AHeaderThatNoToolkitWritesNamesNone", "[cache]") {
  const std::string cubin = trivial_cubin("sm_90a_12.8");
  const auto names = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    std::string other = cubin;
    put(&other, at, value, size);
    return read_exactly(other).has_value();
  };
  CHECK(names(48, 0x00500550, 4));        // sm_80
  CHECK_FALSE(names(48, 0x00500d5a, 4));  // the architecture's two places differ
  CHECK_FALSE(names(48, 0x00640d64, 4));  // sm_100a has the note
  CHECK_FALSE(names(7, 0x0841, 2));       // as cubins with the note have it
  CHECK_FALSE(names(8, 6, 1));
  for (const std::uint64_t version : {0, 1, 119, 130, 1280}) CHECK_FALSE(names(20, version, 4));
}

TEST_CASE("TheToolkitNoteIsFoundBehindOthers", "[cache]") {
  const std::string notes = make_note("Somebody", 2000, kVersion, "-arch sm_80") +
                            make_note("NVIDIA Corp", 1000, kVersion, "-arch sm_86") +
                            make_note("NVIDIA Corp", 2000, kVersion, "-v -arch=sm_100f -O3");
  const std::optional<CubinNote> note = read_exactly(make_cubin(notes));
  REQUIRE(note);
  CHECK(note->arch == "sm_100f");
  CHECK(note->compiler == "12.8.93");
}

TEST_CASE("ANoteWithoutArchitectureOrVersionIsNone", "[cache]") {
  CHECK(read_exactly(make_cubin(make_note("NVIDIA Corp", 2000, kVersion, "-arch sm_80"))));
  CHECK_FALSE(read_exactly(make_cubin(make_note("NVIDIA Corp", 2000, kVersion, "-v"))));
  CHECK_FALSE(read_exactly(make_cubin(make_note("NVIDIA Corp", 2000, kVersion, "-arch"))));
  CHECK_FALSE(read_exactly(make_cubin(make_note("NVIDIA Corp", 2000, kVersion, "-arch  "))));
  CHECK_FALSE(read_exactly(make_cubin(make_note("NVIDIA Corp", 2000, "tools", "-arch sm_80"))));
  CHECK_FALSE(read_exactly(make_cubin("")));
}

TEST_CASE("OnlyElfFilesForNvidiaGpusHaveNotes", "[cache]") {
  CHECK_FALSE(read_exactly(""));
  CHECK_FALSE(read_exactly("not an ELF file"));
  std::string cubin = trivial_cubin();
  put(&cubin, 18, 62, 2);  // x86-64
  CHECK_FALSE(read_exactly(cubin));
}

TEST_CASE("OffsetsBeyondTheFileAreNotFollowed", "[cache]") {
  const std::string cubin = make_cubin(make_note("NVIDIA Corp", 2000, kVersion, "-arch sm_80"));
  // Table of section headers; offset and size of the names and of the notes.
  for (const std::size_t field : {40u, 128u + 24, 128u + 32, 192u + 24, 192u + 32}) {
    for (const std::uint64_t value : {std::uint64_t{cubin.size()}, ~std::uint64_t{0},
                                      ~std::uint64_t{0} - 63, std::uint64_t{1} << 63}) {
      std::string damaged = cubin;
      put(&damaged, field, value, 8);
      INFO("field at " << field << " = " << value);
      CHECK_FALSE(read_exactly(damaged));
    }
  }
}

TEST_CASE("ARealCubinCountsItsKernelsParameters", "[cache]") {
  const std::string cubin = trivial_cubin();
  const std::optional<KernelParameters> parameters = read_parameters(cubin, "trivial");
  REQUIRE(parameters);
  CHECK(parameters->count == 1);
  CHECK(parameters->bytes == 8);
  CHECK_FALSE(read_parameters(cubin, "other"));
  CHECK_FALSE(read_parameters("no cubin", "trivial"));
}

TEST_CASE("TruncatedCubinsAreRefusedOrRight", "[cache]") {
  const std::string name = GENERATE(as<std::string>{}, "sm_90a", "sm_90a_12.8");
  const std::string compiler = name == "sm_90a" ? "13.0.88" : "12.8";
  const std::string cubin = trivial_cubin(name);
  REQUIRE_FALSE(cubin.empty());
  CHECK_FALSE(read_exactly(cubin.substr(0, 64)));  // the header alone
  for (std::size_t size = 0; size < cubin.size(); ++size) {
    const std::optional<CubinNote> note = read_exactly(cubin.substr(0, size));
    // What is cut off may be nothing that the note needs.
    INFO("first " << size << " bytes");
    REQUIRE((!note || (note->arch == "sm_90a" && note->compiler == compiler)));
  }
}

TEST_CASE("FlippedBytesDoNoHarm", "[cache]") {
  const std::string cubin = trivial_cubin(GENERATE(as<std::string>{}, "sm_90a", "sm_90a_12.8"));
  std::vector<char> damaged(cubin.begin(), cubin.end());
  std::size_t refused = 0;
  for (char& byte : damaged) {
    const char good = byte;
    for (const int mask : {0x01, 0x80, 0xff}) {
      byte = static_cast<char>(good ^ mask);
      refused += read_cubin_note({damaged.data(), damaged.size()}) ? 0 : 1;
      (void)read_parameters({damaged.data(), damaged.size()}, "trivial");
    }
    byte = good;
  }
  CHECK(refused > 0);
}

}  // namespace
}  // namespace cubinery
