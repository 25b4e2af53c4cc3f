#include "runtime/jit/nvrtc_places.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "cache/version_order.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

constexpr int kOldest = 12;

// What the folders have with names that begin and end so: folder by folder, the highest version
// first.  Names are compared: a pattern would take what is special in it from the folder, too.
Paths children(const Paths& folders, std::string_view prefix, std::string_view suffix = "") {
  Paths paths;
  for (const fs::path& folder : folders) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      std::string name = entry->path().filename().string();
      if (name.starts_with('.') || !name.starts_with(prefix) || !name.ends_with(suffix)) continue;
      names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end(),
              [](const std::string& a, const std::string& b) { return version_less(b, a); });
    for (const std::string& name : names) paths.push_back(folder / name);
  }
  return paths;
}

Paths each(Paths folders, const char* below) {
  for (fs::path& folder : folders) folder /= below;
  return folders;
}

void append(Paths more, Paths* paths) { paths->insert(paths->end(), more.begin(), more.end()); }

// In the wheels of NVIDIA among these folders' packages.
Paths wheels(const Paths& packages) { return each(children(each(packages, "nvidia"), ""), "lib"); }

bool is_new_enough(const fs::path& library) {
  const std::string name = library.filename().string();
  const std::string_view number = std::string_view(name).substr(name.rfind('.') + 1);
  int major = 0;
  const char* const end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, major);
  return error == std::errc() && stop == end && major >= kOldest;
}

}  // namespace

std::vector<std::string> nvrtc_places(const fs::path& root, const Paths& own) {
  const fs::path local = root / "usr/local";
  Paths folders = {local / "cuda/lib64"};
  append(each(children({local}, "cuda-"), "lib64"), &folders);
  folders.push_back(root / "opt/cuda/lib64");
  for (const fs::path& folder : own) {
    append(wheels({folder / ".."}), &folders);
    append(wheels(each(children({folder / "../lib"}, "python3"), "site-packages")), &folders);
  }
  for (const fs::path& lib : {local / "lib", root / "usr/lib"}) {
    append(wheels(children(children({lib}, "python3"), "", "-packages")), &folders);
  }
  std::vector<std::string> places;
  constexpr std::string_view kName = "libnvrtc.so.";
  for (const fs::path& library : children(folders, kName)) {
    const bool has_one_number =
        library.filename().string().find('.', kName.size()) == std::string::npos;
    if (has_one_number && is_new_enough(library)) places.push_back(library.string());
  }
  return places;
}

}  // namespace cubinery
