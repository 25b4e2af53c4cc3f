#include "codegen/arch.h"

#include <set>
#include <string>

#include "cubinery/context.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

std::string native_name(int major, int minor) {
  const std::optional<Arch> arch = native_arch(major, minor);
  return arch ? arch->name() : "none";
}

bool runs(const char* name, int major, int minor) {
  const std::optional<Arch> arch = parse_arch(name);
  REQUIRE(arch);
  return runs_on(*arch, major, minor);
}

TEST_CASE("KnownArchitecturesParseAndPrint", "[cpu]") {
  REQUIRE_FALSE(known_architectures().empty());
  CHECK(known_architectures().front() == "sm_80");
  std::set<std::string> names;
  for (const std::string& name : known_architectures()) {
    const std::optional<Arch> arch = parse_arch(name);
    REQUIRE(arch);
    CHECK(arch->name() == name);
    CHECK(runs_on(*arch, arch->major, arch->minor));
    names.insert(name);
  }
  CHECK(names.size() == known_architectures().size());
}

TEST_CASE("OtherNamesAreNoArchitectures", "[cpu]") {
  for (const char* name : {"", "90a", "sm_", "sm_90", "sm90a", "SM_90A", "sm_90a ", " sm_90a",
                           "sm_90af", "sm_70", "sm_1000", "compute_90a", "sm_090a"}) {
    INFO(name);
    CHECK_FALSE(parse_arch(name));
  }
}

TEST_CASE("Fp8CameBetweenGpusOfOneMajorVersion", "[cpu]") {
  std::string without;
  for (const std::string& name : known_architectures()) {
    if (!has_fp8(*parse_arch(name))) without += name + " ";
  }
  CHECK(without == "sm_80 sm_86 sm_87 ");
}

TEST_CASE("ADeviceGetsItsMostSpecificArchitecture", "[cpu]") {
  CHECK(native_name(8, 0) == "sm_80");
  CHECK(native_name(8, 6) == "sm_86");
  CHECK(native_name(8, 7) == "sm_87");
  CHECK(native_name(8, 9) == "sm_89");
  CHECK(native_name(9, 0) == "sm_90a");
  CHECK(native_name(10, 0) == "sm_100a");
  CHECK(native_name(10, 3) == "sm_103a");
  CHECK(native_name(11, 0) == "sm_110a");
  CHECK(native_name(12, 0) == "sm_120a");
  CHECK(native_name(12, 1) == "sm_121a");
  CHECK(native_name(7, 5) == "none");
  CHECK(native_name(9, 1) == "none");
  CHECK(native_name(13, 0) == "none");
}

TEST_CASE("PlainCubinsRunOnNewerMinorVersions", "[cpu]") {
  CHECK(runs("sm_80", 8, 0));
  CHECK(runs("sm_80", 8, 9));
  CHECK(runs("sm_86", 8, 9));
  CHECK_FALSE(runs("sm_86", 8, 0));
  CHECK_FALSE(runs("sm_80", 9, 0));
}

TEST_CASE("ArchitectureSpecificCubinsRunOnOneCapability", "[cpu]") {
  CHECK(runs("sm_90a", 9, 0));
  CHECK_FALSE(runs("sm_90a", 10, 0));
  CHECK(runs("sm_100a", 10, 0));
  CHECK_FALSE(runs("sm_100a", 10, 3));
  CHECK_FALSE(runs("sm_103a", 10, 0));
  CHECK_FALSE(runs("sm_120a", 12, 1));
}

TEST_CASE("FamilyCubinsRunOnTheirFamily", "[cpu]") {
  CHECK(runs("sm_100f", 10, 0));
  CHECK(runs("sm_100f", 10, 3));
  CHECK_FALSE(runs("sm_103f", 10, 0));
  CHECK_FALSE(runs("sm_100f", 11, 0));
  CHECK_FALSE(runs("sm_100f", 12, 0));
  CHECK(runs("sm_120f", 12, 1));
}

TEST_CASE("EveryNativeArchitectureIsKnownAndRuns", "[cpu]") {
  for (int major = 0; major < 20; ++major) {
    for (int minor = 0; minor < 10; ++minor) {
      const std::optional<Arch> arch = native_arch(major, minor);
      if (!arch) continue;
      CHECK(parse_arch(arch->name()));
      CHECK(runs_on(*arch, major, minor));
    }
  }
}

// The CUDA programming guide, technical specifications by compute capability.
TEST_CASE("ABlocksSharedMemoryDependsOnTheArchitecture", "[cpu]") {
  for (const std::string& name : known_architectures()) {
    const Arch arch = parse_arch(name).value();
    int kib = 227;
    if (name == "sm_80" || name == "sm_87") kib = 163;
    if (name == "sm_86" || name == "sm_89" || arch.major == 12) kib = 99;
    INFO(name);
    CHECK(max_shared_bytes(arch) == kib * 1024);
  }
}

// What NVRTC 12.8.93, 12.9.86 and 13.0.88 were found to compile for.
TEST_CASE("AnArchitectureIsKnownSinceAVersionOfNvrtc", "[cpu]") {
  const std::set<std::string> of_12_8 = {"sm_80",  "sm_86",   "sm_87",  "sm_89",
                                         "sm_90a", "sm_100a", "sm_120a"};
  const std::set<std::string> of_13_0 = {"sm_110a", "sm_110f"};
  for (const std::string& name : known_architectures()) {
    INFO(name);
    CHECK(nvrtc_since(parse_arch(name).value()) == (of_12_8.contains(name)   ? "12.8"
                                                    : of_13_0.contains(name) ? "13.0"
                                                                             : "12.9"));
  }
}

TEST_CASE("ClustersCameWithHopper", "[cpu]") {
  CHECK_FALSE(has_clusters(8));
  CHECK(has_clusters(9));
  CHECK(has_clusters(12));
}

}  // namespace
}  // namespace cubinery
