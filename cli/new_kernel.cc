// cubinery new-kernel: a kernel of one's own to start from, with all that the typed way has.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cctype>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/embedded_files.h"
#include "cli/print.h"
#include "codegen/bundle.h"

namespace cubinery {
namespace {

namespace fs = std::filesystem;

// As the files spell it, "rms_norm", "RmsNorm" and "RMS_NORM", or as a new kernel does.
struct Spellings {
  std::string folder;  // file names and functions
  std::string type;
  std::string macro;
};

Spellings spellings_of(const std::string& name) {
  Spellings found{.folder = name, .type = {}, .macro = {}};
  bool starts = true;
  for (const char c : name) {
    const auto upper = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    found.macro += upper;
    if (c != '_') found.type += starts ? upper : c;
    starts = c == '_';
  }
  return found;
}

void replace_all(std::string_view from, std::string_view to, std::string* text) {
  for (std::size_t at = text->find(from); at != text->npos; at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
  }
}

std::string renamed(std::string_view text, const Spellings& ours) {
  static const Spellings kTheirs = spellings_of("rms_norm");
  std::string made(text);
  replace_all(kTheirs.folder, ours.folder, &made);
  replace_all(kTheirs.type, ours.type, &made);
  replace_all(kTheirs.macro, ours.macro, &made);
  return made;
}

Status check_name(const std::string& name) {
  const auto is_word = [](char c) {
    return std::islower(static_cast<unsigned char>(c)) != 0 || c == '_' ||
           std::isdigit(static_cast<unsigned char>(c)) != 0;
  };
  const bool is_name = !name.empty() && std::islower(static_cast<unsigned char>(name[0])) != 0 &&
                       std::all_of(name.begin(), name.end(), is_word);
  if (!is_name) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("NAME = \"{}\"; accepted: a C identifier of small letters, digits and "
                    "_, such as my_norm",
                    name));
  }
  if (embedded_digests(name) == nullptr) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("NAME = {}: the library's own kernel has this name", name));
}

Status write_files(const std::string& name, const fs::path& directory) {
  CUBINERY_RETURN_IF_ERROR(check_name(name));
  std::error_code error;
  if (fs::exists(directory, error) && !fs::is_empty(directory, error)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is there, and not empty; accepted: a new or an empty folder",
                              directory.string()));
  }
  const Spellings ours = spellings_of(name);
  for (const EmbeddedFile* file = kOwnKernelFiles; !file->path.empty(); ++file) {
    const fs::path path = directory / renamed(file->path, ours);
    fs::create_directories(path.parent_path(), error);
    if (error) {
      return Status(Code::kIo, fmt::format("cannot make {}: {}", path.parent_path().string(),
                                           error.message()));
    }
    CUBINERY_RETURN_IF_ERROR(write_text(path.string(), renamed(file->text, ours)));
  }
  return {};
}

int run(const std::string& name, const std::string& given) {
  const std::string directory = given.empty() ? name : given;
  if (const Status status = write_files(name, directory); !status.ok()) {
    return exit_code_of(status);
  }
  const std::string folder = fmt::format("templates/{0}/", name);
  Table files({"file", "what is yours there"});
  files.add({folder + "key.h", "what is compiled in, which of it is tuned, what a launch takes"});
  files.add({folder + "fields.h", "the choices of what is tuned"});
  files.add({folder + name + ".cu", "the kernel"});
  files.add({folder + name + "_ref.h", "what it is compared with"});
  files.add({"main.cc", "compiles it, runs it where there is a GPU, prints its manifest"});
  print(fmt::format(R"({0}: an RMS norm by the name of {1}, to be changed into yours
{2}
  cmake -S {0} -B {0}/build && cmake --build {0}/build
  {0}/build/{1}
  {0}/build/{1} --manifest > kernels.json
  cubinery prewarm --manifest kernels.json --template-dir {0}/templates --arch sm_90a
)",
                    directory, name, indented(files.text(), "  ")));
  return kExitOk;
}

struct Asked {
  std::string name;
  std::string directory;
};

}  // namespace

void add_new_kernel(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "new-kernel", "Write a kernel of your own to start from: key, kernel, reference, program");
  const auto asked = std::make_shared<Asked>();
  command->add_option("name", asked->name, "Of the kernel, a C identifier")
      ->type_name("NAME")
      ->required();
  command->add_option("--directory", asked->directory, "A new folder [NAME]")->type_name("DIR");
  command->callback([asked, exit_code] { *exit_code = run(asked->name, asked->directory); });
}

}  // namespace cubinery
