// Where libnvrtc is looked for.
#include "runtime/jit/nvrtc_places.h"

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

using test::TempDir;

// With what a shell's pattern takes for something else.
const std::vector<std::string> kFolders = {"plain", "a[b]c",       "a]b[",  "all*",
                                           "who?",  "back\\slash", "{x,y}", "blank here"};

struct Tree {
  const TempDir temp;
  fs::path root;
  std::vector<std::string> libraries;  // in the order that they are expected in

  explicit Tree(const std::string& folder) : root(temp.path() + "/" + folder) {}

  void add(const std::string& path, bool is_expected = true) {
    fs::create_directories((root / path).parent_path());
    test::write_bytes((root / path).string(), "");
    if (is_expected) libraries.push_back((root / path).string());
  }
};

TEST_CASE("ToolkitsAreFoundTheHighestVersionFirst", "[cpu]") {
  Tree tree(GENERATE(from_range(kFolders)));
  tree.add("usr/local/cuda/lib64/libnvrtc.so.13");
  tree.add("usr/local/cuda-14.0/lib64/libnvrtc.so.14");
  tree.add("usr/local/cuda-14.0/lib64/libnvrtc.so.13");
  tree.add("usr/local/cuda-13.10/lib64/libnvrtc.so.13");
  tree.add("usr/local/cuda-13.2/lib64/libnvrtc.so.13");
  tree.add("usr/local/cuda-12.9/lib64/libnvrtc.so.12");
  tree.add("usr/local/cuda-12.8/lib64/libnvrtc.so.12");
  tree.add("opt/cuda/lib64/libnvrtc.so.13");
  tree.add("usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib/libnvrtc.so.13");
  tree.add("usr/local/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  tree.add("usr/local/lib/python3.9/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  tree.add("usr/lib/python3/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.13");
  tree.add("usr/local/cuda-11.8/lib64/libnvrtc.so.11.2", false);
  tree.add("usr/local/cuda-11.8/lib64/libnvrtc.so.11", false);
  tree.add("usr/local/cuda-13.2/lib64/libnvrtc.so.13.2.51", false);
  tree.add("usr/local/cuda-13.2/lib64/libnvrtc.so", false);
  tree.add("usr/local/cuda-13.2/lib64/libnvrtc.so.alt", false);
  tree.add("usr/local/cuda-13.2/lib64/libnvrtc-builtins.so.13", false);
  tree.add("usr/local/lib/python2.7/site-packages/nvidia/cu13/lib/libnvrtc.so.13", false);
  CHECK(nvrtc_places(tree.root, {}) == tree.libraries);
}

TEST_CASE("TheWheelIsFoundBesideWhoAsks", "[cpu]") {
  Tree tree(GENERATE(from_range(kFolders)));
  tree.add("venv/bin/../lib/python3.12/site-packages/nvidia/cu14/lib/libnvrtc.so.14");
  tree.add("venv/bin/../lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  tree.add("venv/bin/../lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  tree.add("venv/bin/../lib/python3.9/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  tree.add("packages/cubinery/../nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  tree.add("packages/cubinery/../nvidia/cu13/lib/libnvrtc.so.13");
  fs::create_directories(tree.root / "venv/bin");
  fs::create_directories(tree.root / "packages/cubinery");
  CHECK(nvrtc_places(tree.root, {tree.root / "venv/bin", tree.root / "packages/cubinery"}) ==
        tree.libraries);
  CHECK(nvrtc_places(tree.root, {}).empty());
}

}  // namespace
}  // namespace cubinery
