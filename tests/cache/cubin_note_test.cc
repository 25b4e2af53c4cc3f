#include "cache/cubin_note.h"

#include <string>
#include <vector>

#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

// Made by NVRTC 13.0.88 from `__global__ void trivial(float* x) { x[threadIdx.x] *= 2.0f; }`.
std::string trivial_cubin() {
  return test::read_bytes(CUBINERY_TEST_DIR "/golden/trivial_sm_90a.cubin");
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
  const std::string cubin = trivial_cubin();
  REQUIRE_FALSE(cubin.empty());
  for (std::size_t size = 0; size < cubin.size(); ++size) {
    const std::optional<CubinNote> note = read_exactly(cubin.substr(0, size));
    // What is cut off may be nothing that the note needs.
    INFO("first " << size << " bytes");
    REQUIRE((!note || (note->arch == "sm_90a" && note->compiler == "13.0.88")));
  }
}

TEST_CASE("FlippedBytesDoNoHarm", "[cache]") {
  const std::string cubin = trivial_cubin();
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
