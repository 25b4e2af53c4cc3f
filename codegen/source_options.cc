#include "codegen/source_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "codegen/cxx_text.h"
#include "codegen/nearest.h"
#include "codegen/read_json.h"

namespace cubinery {
namespace {

// What stands behind an option's name.
enum class Value : int {
  kNone,
  kTrueFalse,
  kNumber,
  kWord,      // letters, digits and + - _ . ,
  kWarning,   // lower-case letters, digits, - and =, not one of another program
  kStandard,  // of C++
  kMacro,     // a definition, any text; may be attached to the short name
  kName,      // an identifier; may be attached to the short name
  kOfPtxas,   // options of the assembler, between commas
  kOfHost,    // likewise of the host compiler
};

enum class KnownTo : int { kBoth, kNvrtc, kNvcc };

// An option that a text may have.
struct Allowed {
  std::string_view name;   // as identities have it
  std::string_view other;  // the same by the compiler's other name; empty: it has none
  Value value;
  KnownTo known_to = KnownTo::kBoth;
};

// Each changes how the text is compiled, by itself alone: none reads or writes a file, and none
// makes anything but a cubin of one architecture.  So an identity that has the options covers what
// they do.
constexpr Allowed kAllowed[] = {
    {"-D", "--define-macro", Value::kMacro},
    {"-U", "--undefine-macro", Value::kName},
    {"-std", "--std", Value::kStandard},
    {"--use_fast_math", "-use_fast_math", Value::kNone},
    {"--ftz", "-ftz", Value::kTrueFalse},
    {"--prec-sqrt", "-prec-sqrt", Value::kTrueFalse},
    {"--prec-div", "-prec-div", Value::kTrueFalse},
    {"--fmad", "-fmad", Value::kTrueFalse},
    {"--maxrregcount", "-maxrregcount", Value::kNumber},
    {"-Xptxas", "--ptxas-options", Value::kOfPtxas},
    {"-lineinfo", "--generate-line-info", Value::kNone},
    {"-G", "--device-debug", Value::kNone},
    {"--dopt", "-dopt", Value::kWord},
    {"--Ofast-compile", "-Ofc", Value::kWord},
    {"--extra-device-vectorization", "-extra-device-vectorization", Value::kNone},
    {"--split-compile", "-split-compile", Value::kNumber},
    {"--jump-table-density", "-jtd", Value::kNumber},
    {"--restrict", "-restrict", Value::kNone},
    {"-default-device", "--device-as-default-execution-space", Value::kNone, KnownTo::kNvrtc},
    {"--device-int128", "-device-int128", Value::kNone, KnownTo::kNvrtc},
    {"--device-float128", "-device-float128", Value::kNone, KnownTo::kNvrtc},
    {"--device-stack-protector", "-device-stack-protector", Value::kTrueFalse},
    {"--builtin-move-forward", "-builtin-move-forward", Value::kTrueFalse, KnownTo::kNvrtc},
    {"--builtin-initializer-list", "-builtin-initializer-list", Value::kTrueFalse, KnownTo::kNvrtc},
    {"--minimal", "-minimal", Value::kNone, KnownTo::kNvrtc},
    {"--expt-relaxed-constexpr", "-expt-relaxed-constexpr", Value::kNone, KnownTo::kNvcc},
    {"--extended-lambda", "-extended-lambda", Value::kNone, KnownTo::kNvcc},
    {"--expt-extended-lambda", "-expt-extended-lambda", Value::kNone, KnownTo::kNvcc},
    {"-O", "--optimize", Value::kNumber, KnownTo::kNvcc},
    {"-Xcompiler", "--compiler-options", Value::kOfHost, KnownTo::kNvcc},
    {"-w", "--disable-warnings", Value::kNone},
    {"--diag-suppress", "-diag-suppress", Value::kWord},
    {"--diag-warn", "-diag-warn", Value::kWord},
    {"--diag-error", "-diag-error", Value::kWord},
    {"--display-error-number", "-err-no", Value::kNone},
    {"--no-display-error-number", "-no-err-no", Value::kNone},
    {"--brief-diagnostics", "-brief-diag", Value::kTrueFalse},
    {"--optimization-info", "-opt-info", Value::kWord},
};

// Of ptxas, as far as they change the code or what is said of it, and no file: a name alone, or a
// name and a word.
constexpr Allowed kAllowedOfPtxas[] = {
    {"-v", "--verbose", Value::kNone},
    {"-O", "--opt-level", Value::kNumber},
    {"-dlcm", "--def-load-cache", Value::kWord},
    {"-dscm", "--def-store-cache", Value::kWord},
    {"-flcm", "--force-load-cache", Value::kWord},
    {"-fscm", "--force-store-cache", Value::kWord},
    {"-fmad", "--fmad", Value::kTrueFalse},
    {"-allow-expensive-optimizations", "--allow-expensive-optimizations", Value::kTrueFalse},
    {"-disable-optimizer-consts", "--disable-optimizer-constants", Value::kNone},
    {"-no-bb-merge", "--dont-merge-basicblocks", Value::kNone},
    {"-opt-fp-atomics", "--optimize-float-atomics", Value::kNone},
    {"-regUsageLevel", "--register-usage-level", Value::kNumber},
    {"-ret-end", "--return-at-end", Value::kNone},
    {"-sp-bounds-check", "--sp-bounds-check", Value::kNone},
    {"-w", "--disable-warnings", Value::kNone},
    {"-Werror", "--warning-as-error", Value::kNone},
    {"-warn-spills", "--warn-on-spills", Value::kNone},
    {"-warn-lmem-usage", "--warn-on-local-memory-usage", Value::kNone},
    {"-warn-double-usage", "--warn-on-double-precision-use", Value::kNone},
};

// Of g++, whose macros alone are of consequence for what the GPU gets: none reads or writes a file,
// or depends on the machine.
constexpr Allowed kAllowedOfHost[] = {
    {"-O", "", Value::kNumber},
    {"-W", "", Value::kWarning},
    {"-w", "", Value::kNone},
    {"-g", "", Value::kNone},
    {"-fPIC", "", Value::kNone},
    {"-fconcepts", "", Value::kNone},
    {"-fno-strict-aliasing", "", Value::kNone},
    {"-fvisibility", "", Value::kWord},
    {"-pthread", "", Value::kNone},
};

// Options that people use elsewhere, and what there is in their place.
struct Refused {
  std::string_view names;  // separated by blanks; one with * is any that begins so
  std::string_view instead;
};

constexpr Refused kRefused[] = {
    {"-I* --include-path", "folders stand in `includes`"},
    {"-include --pre-include --preinclude", "an #include line of the source"},
    {"-optf --options-file @*", "the options themselves, not a file of them"},
    {"-arch --gpu-architecture -gencode --generate-code", "Options::arch"},
    {"-dc --device-c -dw --device-w -rdc --relocatable-device-code -ewp "
     "--extensible-whole-program",
     "all that a kernel calls stands in its source: nothing is linked"},
    {"-dlto --dlink-time-opt -ltoir --gen-opt-lto -optix-ir --optix-ir -ptx --ptx -fatbin --fatbin "
     "-cubin --cubin -fdevice-syntax-only --fdevice-syntax-only",
     "nothing: what is made is a cubin"},
    {"-pch* --pch* -create-pch --create-pch -use-pch --use-pch -instantiate-templates-in-pch "
     "--instantiate-templates-in-pch",
     "nothing: a precompiled header is a file that no identity names"},
    {"-time --time -fdevice-time-trace --fdevice-time-trace -device-time-trace --device-time-trace",
     "KernelInfo::compile_ms"},
    {"-modify-stack-limit --modify-stack-limit", "nothing: it is a limit of the whole process"},
    {"-o --output-file -odir --output-directory -keep --keep -keep-dir --keep-dir",
     "CompiledKernel::path says where the cubin is"},
};

constexpr std::string_view kWordCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789+-.,";

bool consists_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == text.npos;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

Status refused(std::string_view option, std::string_view accepted) {
  return Status(Code::kInvalidArgument,
                fmt::format("options has \"{}\"; accepted: {}", excerpt(option), accepted));
}

// An option as it was found: what is behind its name, if anything is.
struct Found {
  const Allowed* row;
  std::optional<std::string_view> value;
};

// "name", "name=value", "name value"; "-Dvalue" where values may be attached.
std::optional<std::optional<std::string_view>> value_behind(std::string_view option,
                                                            std::string_view name, bool attaches) {
  using Behind = std::optional<std::string_view>;
  if (name.empty() || !option.starts_with(name)) return std::nullopt;
  option.remove_prefix(name.size());
  if (option.empty()) return Behind();
  const bool is_long = name.starts_with("--");
  if (option[0] == ' ' || (option[0] == '=' && (is_long || !attaches))) {
    return Behind(option.substr(std::min(option.size(), option.find_first_not_of(' ', 1))));
  }
  if (attaches && !is_long) return Behind(option);
  return std::nullopt;
}

// Whether its value may stand at its short name.
bool attaches(const Allowed& row) {
  return row.value == Value::kMacro || row.value == Value::kName || row.value == Value::kWarning ||
         row.name == "-O";
}

template <std::size_t kRows>
std::optional<Found> find_row(const Allowed (&rows)[kRows], std::string_view option) {
  for (const Allowed& row : rows) {
    for (const std::string_view name : {row.name, row.other}) {
      if (const auto behind = value_behind(option, name, attaches(row))) {
        return Found{&row, *behind};
      }
    }
  }
  return std::nullopt;
}

// What is accepted as an option's value; empty: this one.
std::string_view why_not_value(Value sort, std::string_view value) {
  switch (sort) {
    case Value::kNone:
      return "the option without a value";
    case Value::kTrueFalse:
      return value == "true" || value == "false" ? "" : "true, false";
    case Value::kNumber:
      return consists_of(value, "0123456789") && value.size() < 6 ? "" : "a number";
    case Value::kWord:
      return consists_of(value, kWordCharacters) ? "" : "a word";
    case Value::kStandard:
      return value == "c++17" || value == "c++20" || value == "c++23"
                 ? ""
                 : "c++17, c++20, c++23; older ones have trigraphs, which hide #include";
    case Value::kMacro:
      return !value.empty() && is_word_start(value[0]) && value.find("__has_") == value.npos
                 ? ""
                 : "NAME or NAME=text, without __has_include";
    case Value::kName:
      return is_identifier(value) ? "" : "NAME";
    case Value::kWarning:
      return consists_of(value, "abcdefghijklmnopqrstuvwxyz0123456789-=") && value.size() > 1
                 ? ""
                 : "a warning";
    case Value::kOfPtxas:
    case Value::kOfHost:
      return "";
  }
  return "";
}

const Refused* find_refused(std::string_view option) {
  for (const Refused& refused : kRefused) {
    std::string_view names = refused.names;
    while (!names.empty()) {
      std::string_view name = names.substr(0, names.find(' '));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      const bool is_prefix = name.ends_with('*');
      if (is_prefix) name.remove_suffix(1);
      if (!option.starts_with(name)) continue;
      if (is_prefix || option.size() == name.size() || option[name.size()] == '=' ||
          option[name.size()] == ' ') {
        return &refused;
      }
    }
  }
  return nullptr;
}

bool knows(Compiler compiler, const Allowed& row) {
  return row.known_to == KnownTo::kBoth ||
         (row.known_to == KnownTo::kNvcc) == (compiler == Compiler::kNvcc);
}

template <std::size_t kRows>
std::vector<std::string> names_of(const Allowed (&rows)[kRows], Compiler compiler) {
  std::vector<std::string> names;
  for (const Allowed& row : rows) {
    if (knows(compiler, row)) names.emplace_back(row.name);
  }
  return names;
}

Status unknown(std::string_view option, Compiler compiler) {
  if (const Refused* known = find_refused(option)) return refused(option, known->instead);
  const std::vector<std::string> names = names_of(kAllowed, compiler);
  return refused(option, fmt::format("{}{}", fmt::join(names, ", "),
                                     did_you_mean(option.substr(0, option.find('=')), names)));
}

using Spelled = std::vector<std::string>;

// One spelling of options of a program that the compiler starts, each by itself: NVRTC does not
// take them apart.
template <std::size_t kRows>
Result<Spelled> of_program(const Allowed& row, const Allowed (&rows)[kRows], std::string_view whole,
                           std::string_view list) {
  Spelled spelled;
  while (true) {
    const std::string_view one = list.substr(0, list.find(','));
    const std::optional<Found> found = find_row(rows, one);
    const bool takes_value = found && found->row->value != Value::kNone;
    if (!found || takes_value != found->value.has_value() ||
        (takes_value && !why_not_value(found->row->value, *found->value).empty())) {
      return refused(whole, fmt::format("{} of {}", row.name,
                                        fmt::join(names_of(rows, Compiler::kNvcc), ", ")));
    }
    const Allowed& inner = *found->row;
    spelled.push_back(takes_value ? fmt::format("{}={}{}{}", row.name, inner.name,
                                                attaches(inner) ? "" : "=", *found->value)
                                  : fmt::format("{}={}", row.name, inner.name));
    if (one.size() == list.size()) return spelled;
    list.remove_prefix(one.size() + 1);
  }
}

// One spelling of an option; `next`: the one behind it, which may be its value.
Result<Spelled> spelled(std::string_view option, Compiler compiler, const std::string* next,
                        bool* takes_next) {
  const std::optional<Found> found = find_row(kAllowed, option);
  if (!found) return unknown(option, compiler);
  const Allowed& row = *found->row;
  if (!knows(compiler, row)) {
    const bool is_of_nvcc = row.known_to == KnownTo::kNvcc;
    return refused(option, fmt::format("it with compiler {}, not with {}; with that: {}",
                                       is_of_nvcc ? "nvcc" : "nvrtc", to_string(compiler),
                                       fmt::join(names_of(kAllowed, compiler), ", ")));
  }
  std::optional<std::string_view> value = found->value;
  if (row.value == Value::kNone) {
    if (value) return refused(option, why_not_value(row.value, *value));
    return Spelled{std::string(row.name)};
  }
  if (!value && next != nullptr) {
    value = *next;
    *takes_next = true;
  }
  if (!value) return refused(option, fmt::format("{} and its value", option));
  const std::string whole =
      *takes_next ? fmt::format("{} {}", option, *value) : std::string(option);
  if (std::any_of(whole.begin(), whole.end(), is_control)) {
    return refused(whole, "an option of printed characters");
  }
  if (row.value == Value::kOfPtxas) return of_program(row, kAllowedOfPtxas, whole, *value);
  if (row.value == Value::kOfHost) return of_program(row, kAllowedOfHost, whole, *value);
  const std::string_view accepted = why_not_value(row.value, *value);
  if (!accepted.empty()) return refused(whole, fmt::format("{} of {}", row.name, accepted));
  return Spelled{fmt::format("{}{}{}", row.name, attaches(row) ? "" : "=", *value)};
}

// Puts an option behind the others, or in the place of a fixed one that says the same.
void add(std::string option, std::size_t fixed, std::vector<std::string>* options) {
  const auto end = options->begin() + static_cast<std::ptrdiff_t>(fixed);
  const auto place = std::find_if(options->begin(), end, [&](const std::string& other) {
    return other == option || (option.starts_with("-std=") && other.starts_with("-std="));
  });
  if (place != end) {
    *place = std::move(option);
  } else {
    options->push_back(std::move(option));
  }
}

}  // namespace

Result<std::vector<std::string>> source_options(const std::vector<std::string>& fixed,
                                                const std::vector<std::string>& given,
                                                Compiler compiler) {
  std::vector<std::string> options = fixed;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].empty() || std::any_of(given[i].begin(), given[i].end(), is_control)) {
      return refused(given[i], "an option of printed characters");
    }
    bool takes_next = false;
    Result<Spelled> all =
        spelled(given[i], compiler, i + 1 < given.size() ? &given[i + 1] : nullptr, &takes_next);
    if (!all) return std::move(all).error();
    if (takes_next) ++i;
    for (std::string& option : *all) add(std::move(option), fixed.size(), &options);
  }
  return options;
}

std::string options_text(const std::vector<std::string>& options) {
  std::string text;
  for (const std::string& option : options) {
    if (!text.empty()) text += ' ';
    for (const char c : option) {
      if (c == ' ' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text;
}

}  // namespace cubinery
