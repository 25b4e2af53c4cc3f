// The shape of what is read, all of it little-endian and none of it to be trusted:
//
//   ELF header -> section headers -> the section named .note.nv.tkinfo -> its notes
//
//   note        u32 name size, u32 descriptor size, u32 type = 2000, "NVIDIA Corp\0", descriptor
//   descriptor  u32 {layout, ?, tool, version, build, command line}, then a table of strings
//               that the last four point into:
//               "\0ptxas\0Cuda compilation tools, release 13.0, V13.0.88\0...\0-v  -arch sm_90a \0"
//
// and the section named .nv.info.<kernel>, a list of attributes (NVIDIA documents neither):
//
//   attribute   u8 form, u8 kind, u16 value; in form 4 the value is the size of what follows it
//
// NVRTC 12.8 and 12.9 write that note for sm_100 and newer.  Before that their cubins, as those of
// 12.4 and 12.6, are of an older form, in which the ELF header's words tell:
//
//   OS ABI, its version   0x33, 7; with the note 0x41, 8
//   version               128 for CUDA 12.8; with the note 1
//   flags                 0x005a0d5a for sm_90a: the architecture, twice, and 0x800 for an 'a'
#include "cache/cubin_note.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace cubinery {
namespace {

constexpr std::string_view kSection = ".note.nv.tkinfo";
constexpr std::string_view kVendor("NVIDIA Corp\0", 12);
constexpr std::uint64_t kToolkitInfo = 2000;
constexpr std::uint64_t kMachineCuda = 190;
// Byte offsets of the descriptor's words.
constexpr std::size_t kVersionWord = 12;
constexpr std::size_t kCommandLineWord = 20;
constexpr std::size_t kStringTable = 24;
// Words of the ELF header, in the form without the note.
constexpr std::size_t kAbiBytes = 7;
constexpr std::uint64_t kAbiWithoutNote = 0x0733;
constexpr std::size_t kVersionBytes = 20;
constexpr std::uint64_t kFirstToolkit = 120;
constexpr std::uint64_t kLastToolkit = 129;
constexpr std::size_t kFlagBytes = 48;
constexpr std::uint64_t kExactFlag = 0x800;
constexpr std::uint64_t kFirstWithNote = 100;  // of the architectures
// Attributes of .nv.info.<kernel>.
constexpr std::uint64_t kFormSized = 4;
constexpr std::uint64_t kKindParameter = 0x17;
constexpr std::uint64_t kKindLargeParameter = 0x45;  // of a kernel that takes more than 4352 bytes
constexpr std::uint64_t kKindParameterBytes = 0x19;  // of all, up to the last one's end; the value
// Of a parameter's attribute: which one it is, where it starts (large ones start at 0), its size.
constexpr std::size_t kParameterOrdinal = 4 + 4;
constexpr std::size_t kParameterStart = 4 + 6;
constexpr std::size_t kParameterSize = 4 + 8;
constexpr unsigned kParameterSizeShift = 18;  // of a large one all bits are the size

// `size` bytes at `offset`; nullopt when they are not all there.
std::optional<std::string_view> slice(std::string_view bytes, std::uint64_t offset,
                                      std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
  return bytes.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

// An unsigned number of `size` bytes.  What is not there reads as 0, which is no valid size,
// offset, count or type in any place that asks.
std::uint64_t number(std::string_view bytes, std::uint64_t offset, std::size_t size) {
  const std::optional<std::string_view> digits = slice(bytes, offset, size);
  std::uint64_t value = 0;
  for (std::size_t i = digits ? size : 0; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>((*digits)[i]);
  }
  return value;
}

// The string that starts at `offset`; empty when nothing ends it.
std::string_view string_at(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  table.remove_prefix(static_cast<std::size_t>(offset));
  const std::size_t end = table.find('\0');
  return end == table.npos ? std::string_view() : table.substr(0, end);
}

bool is_gpu_elf(std::string_view cubin) {
  constexpr std::string_view kElf64LittleEndian(
      "\x7f"
      "ELF\x02\x01",
      6);
  return cubin.starts_with(kElf64LittleEndian) && number(cubin, 18, 2) == kMachineCuda;
}

class Sections {
 public:
  explicit Sections(std::string_view cubin)
      : cubin_(cubin),
        table_(number(cubin, 40, 8)),
        stride_(number(cubin, 58, 2)),
        count_(number(cubin, 60, 2)),
        names_(contents(number(cubin, 62, 2))) {}

  std::string_view named(std::string_view name) const {
    for (std::uint64_t i = 0; i < count_; ++i) {
      if (string_at(names_, number(header(i), 0, 4)) == name) return contents(i);
    }
    return {};
  }

  // What stands behind `prefix` in the names that begin with it.
  std::vector<std::string> behind(std::string_view prefix) const {
    std::vector<std::string> found;
    for (std::uint64_t i = 0; i < count_; ++i) {
      const std::string_view name = string_at(names_, number(header(i), 0, 4));
      if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()));
    }
    return found;
  }

 private:
  static constexpr std::uint64_t kHeaderBytes = 64;

  // Empty when it is not there.  No overflow: both factors have 16 bits.
  std::string_view header(std::uint64_t index) const {
    if (index >= count_ || stride_ < kHeaderBytes || table_ > cubin_.size()) return {};
    return slice(cubin_, table_ + index * stride_, kHeaderBytes).value_or("");
  }

  std::string_view contents(std::uint64_t index) const {
    const std::string_view fields = header(index);
    return slice(cubin_, number(fields, 24, 8), number(fields, 32, 8)).value_or("");
  }

  const std::string_view cubin_;
  const std::uint64_t table_;
  const std::uint64_t stride_;
  const std::uint64_t count_;
  const std::string_view names_;  // NOTE: last, made with the members above
};

std::uint64_t padded(std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; }

// The descriptor of the section's first toolkit note; empty when it has none.
std::string_view toolkit_descriptor(std::string_view notes) {
  constexpr std::uint64_t kNoteHeader = 12;
  while (notes.size() > kNoteHeader) {
    const std::uint64_t name_bytes = number(notes, 0, 4);
    const std::uint64_t descriptor_bytes = number(notes, 4, 4);
    const std::uint64_t descriptor_offset = kNoteHeader + padded(name_bytes);
    const auto name = slice(notes, kNoteHeader, name_bytes);
    const auto descriptor = slice(notes, descriptor_offset, descriptor_bytes);
    if (!name || !descriptor) return {};
    if (*name == kVendor && number(notes, 8, 4) == kToolkitInfo) return *descriptor;
    const std::uint64_t next = descriptor_offset + padded(descriptor_bytes);
    if (next >= notes.size()) return {};
    notes.remove_prefix(static_cast<std::size_t>(next));
  }
  return {};
}

// "... -arch sm_90a ..." -> "sm_90a"
std::string arch_in(std::string_view command_line) {
  constexpr std::string_view kOption = "-arch";
  const std::size_t option = command_line.find(kOption);
  if (option == command_line.npos) return {};
  command_line.remove_prefix(option + kOption.size());
  const std::size_t start = command_line.find_first_not_of(" =");
  if (start == command_line.npos) return {};
  command_line.remove_prefix(start);
  const std::string_view arch = command_line.substr(0, command_line.find(' '));
  return arch.starts_with("sm_") ? std::string(arch) : std::string();
}

// What a header of the form without the note says.
std::optional<CubinNote> read_header(std::string_view cubin) {
  const std::uint64_t toolkit = number(cubin, kVersionBytes, 4);
  const std::uint64_t flags = number(cubin, kFlagBytes, 4);
  const std::uint64_t arch = flags & 0xff;
  const bool is_known = number(cubin, kAbiBytes, 2) == kAbiWithoutNote &&
                        toolkit >= kFirstToolkit && toolkit <= kLastToolkit &&
                        arch == (flags >> 16 & 0xff) && arch < kFirstWithNote;
  // The table of sections is near the end: a file that is cut off has none.
  if (!is_known || Sections(cubin).named(".nv.info").empty()) return std::nullopt;
  return CubinNote{.arch = fmt::format("sm_{}{}", arch, (flags & kExactFlag) != 0 ? "a" : ""),
                   .compiler = fmt::format("{}.{}", toolkit / 10, toolkit % 10),
                   .has_build = false};
}

// Notes a parameter's size by its attribute; false: it was there before, or is beyond any kernel's.
bool add_size(std::string_view attribute, bool is_large, std::vector<std::size_t>* sizes) {
  constexpr std::uint64_t kMostParameters = 1 << 15;
  const std::uint64_t ordinal = number(attribute, kParameterOrdinal, 2);
  const std::uint64_t size = number(attribute, kParameterSize, 4);
  if (ordinal >= kMostParameters) return false;
  if (ordinal >= sizes->size()) sizes->resize(static_cast<std::size_t>(ordinal) + 1);
  std::size_t& place = (*sizes)[static_cast<std::size_t>(ordinal)];
  if (place != 0) return false;
  place = static_cast<std::size_t>(is_large ? size : size >> kParameterSizeShift);
  return place != 0;
}

}  // namespace

std::string toolkit_version_in(std::string_view text) {
  constexpr std::string_view kMark = ", V";
  const std::size_t mark = text.rfind(kMark);
  if (mark == text.npos) return {};
  text.remove_prefix(mark + kMark.size());
  return std::string(text.substr(0, text.find_first_not_of("0123456789.")));
}

bool CubinNote::is_by(std::string_view version) const {
  if (has_build) return version == compiler;
  return version.starts_with(compiler + ".");
}

std::optional<CubinNote> read_cubin_note(std::string_view cubin) {
  if (!is_gpu_elf(cubin)) return std::nullopt;
  const std::string_view descriptor = toolkit_descriptor(Sections(cubin).named(kSection));
  if (descriptor.empty()) return read_header(cubin);
  if (descriptor.size() <= kStringTable) return std::nullopt;
  const std::string_view strings = descriptor.substr(kStringTable);
  const std::string_view tool = string_at(strings, number(descriptor, kVersionWord, 4));
  CubinNote note{.arch = arch_in(string_at(strings, number(descriptor, kCommandLineWord, 4))),
                 .compiler = toolkit_version_in(tool)};
  if (note.arch.empty() || note.compiler.empty()) return std::nullopt;
  return note;
}

std::optional<std::string> wrong_cubin(std::string_view cubin, std::string_view arch,
                                       std::string_view compiler) {
  const std::optional<CubinNote> note = read_cubin_note(cubin);
  if (!note) return "the cubin has no compiler note";
  if (note->arch != arch) {
    return fmt::format("the cubin is for {}, its entry says {}", note->arch, arch);
  }
  if (!note->is_by(compiler)) {
    return fmt::format("the cubin is from compiler {}, its entry says {}", note->compiler,
                       compiler);
  }
  return std::nullopt;
}

std::optional<KernelParameters> read_parameters(std::string_view cubin, std::string_view kernel) {
  if (!is_gpu_elf(cubin)) return std::nullopt;
  std::string_view attributes = Sections(cubin).named(".nv.info." + std::string(kernel));
  if (attributes.empty()) return std::nullopt;
  KernelParameters found;
  std::size_t start = 0;
  bool has_sizes = true;
  while (!attributes.empty()) {
    const bool is_sized = number(attributes, 0, 1) == kFormSized;
    const std::uint64_t kind = number(attributes, 1, 1);
    const std::uint64_t value = number(attributes, 2, 2);
    const std::uint64_t bytes = 4 + (is_sized ? value : 0);
    if (bytes > attributes.size()) return std::nullopt;
    if (is_sized && (kind == kKindParameter || kind == kKindLargeParameter)) {
      ++found.count;
      has_sizes = has_sizes && add_size(attributes, kind == kKindLargeParameter, &found.sizes);
    }
    if (is_sized && kind == kKindParameter) {
      start = static_cast<std::size_t>(number(attributes, kParameterStart, 2));
    }
    if (!is_sized && kind == kKindParameterBytes) found.bytes = static_cast<std::size_t>(value);
    attributes.remove_prefix(static_cast<std::size_t>(bytes));
  }
  if (found.count > 0 && found.bytes == 0) return std::nullopt;
  if (!has_sizes || found.sizes.size() != static_cast<std::size_t>(found.count)) {
    found.sizes.clear();
  }
  // One whose type is aligned to more than 16 bytes starts behind a gap.
  if (found.count == 1) {
    if (start > found.bytes) return std::nullopt;
    found.bytes -= start;
  }
  return found;
}

// A kernel has a bank of constants for its parameters; other functions have none.
std::vector<std::string> kernels_in(std::string_view cubin) {
  return is_gpu_elf(cubin) ? Sections(cubin).behind(".nv.constant0.") : std::vector<std::string>();
}

}  // namespace cubinery
