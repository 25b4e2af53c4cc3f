// A record of kernels that have compiled without warnings and without spills,
// tests/data/clean_kernels.txt: what the compiler makes of a kernel follows from what it is given,
// so those need not be compiled again and again.
//
//   cubinery clean kernels 1
//   nvrtc 13.0.88
//   00a1c5e09d42
//   ...
//
// The digests are sorted, each of one kernel.  scripts/write_clean_kernels.sh writes the file.  The
// number on the first line is that of what makes a kernel clean, fault() in compilations.h.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/bundle.h"
#include "codegen/identity.h"
#include "cubinery/fields.h"
#include "cubinery/status.h"
#include "runtime/jit/context_state.h"

namespace cubinery::test {

struct Compilation {
  std::string arch;
  KernelSpec spec;
};
using Compilations = std::vector<Compilation>;

// Of all that a compilation depends on: the kernel's own code and that of all headers that it
// includes, the key in its two forms, the options, the architecture and the compiler; and of the
// parameter's size, which is checked against it. Comments are no code.  Requires: a kernel of the
// library.
inline std::string digest_of_compilation(const Compilation& one, const std::string& nvrtc,
                                         std::string_view code) {
  const Identity identity{
      .kernel = one.spec.kernel,
      .key = one.spec.canonical,
      .template_digest = std::string(code),
      .headers_digest = "",  // those that the kernel includes are in `code`
      .options = fmt::format("{} -DCUBINERY_KEY={}", fmt::join(fixed_compile_options(), " "),
                             one.spec.initializer),
      .arch = one.arch,
      .nvrtc = nvrtc};
  constexpr std::size_t kDigits = 12;
  return digest_of(fmt::format("{}parameter {}\n", to_text(identity), one.spec.param_bytes))
      .substr(0, kDigits);
}
inline std::string digest_of_compilation(const Compilation& one, const std::string& nvrtc) {
  return digest_of_compilation(one, nvrtc, embedded_digests(one.spec.kernel)->code);
}

class CleanKernels {
 public:
  static constexpr std::string_view kFirstLine = "cubinery clean kernels 1";

  // Knows none.
  CleanKernels() = default;
  // kInvalidArgument: the first line that is not as above.
  static Result<CleanKernels> parse(std::string_view text) {
    CleanKernels all;
    std::size_t number = 0;
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      ++number;
      if (end == text.npos || !all.take(number, line)) {
        return Status(
            Code::kInvalidArgument,
            fmt::format(
                "clean kernels: line {}: \"{}\"; accepted: the lines \"{}\" and \"nvrtc VERSION\", "
                "then sorted digests; scripts/write_clean_kernels.sh writes them",
                number, line, kFirstLine));
      }
      text.remove_prefix(end + 1);
    }
    if (number < 2)
      return Status(Code::kInvalidArgument, "clean kernels: the file ends before its third line");
    return all;
  }

  // Whether the compiler of this version has compiled it.
  bool has(const std::string& digest, std::string_view nvrtc) const {
    return nvrtc == nvrtc_ && std::binary_search(digests_.begin(), digests_.end(), digest);
  }
  // One in 16 is compiled all the same, always the same ones: what is wrong with the record, or
  // with digests, is seen.
  static bool is_sample(std::string_view digest) { return digest.ends_with('0'); }

 private:
  bool take(std::size_t number, std::string_view line) {
    if (number == 1) return line == kFirstLine;
    if (number == 2) {
      constexpr std::string_view kLabel = "nvrtc ";
      nvrtc_ = line.starts_with(kLabel) ? line.substr(kLabel.size()) : "";
      return !nvrtc_.empty();
    }
    if (line.size() != 12 || line.find_first_not_of("0123456789abcdef") != line.npos) return false;
    if (!digests_.empty() && digests_.back() >= line) return false;
    digests_.emplace_back(line);
    return true;
  }

  std::string nvrtc_;
  std::vector<std::string> digests_;
};

// What is to be compiled of a list, each kernel once.
struct Sweep {
  Compilations compiled;
  std::vector<std::string> digests;  // of those
  std::size_t known = 0;             // not compiled
  std::size_t sampled = 0;           // known and compiled
};

inline Sweep sweep_of(const Compilations& all, const CleanKernels& clean,
                      const std::string& nvrtc) {
  Sweep sweep;
  std::set<std::pair<std::string, std::string>> seen;
  for (const Compilation& one : all) {
    if (!seen.emplace(one.arch, one.spec.canonical).second) continue;
    std::string digest = digest_of_compilation(one, nvrtc);
    if (clean.has(digest, nvrtc)) {
      if (!CleanKernels::is_sample(digest)) {
        ++sweep.known;
        continue;
      }
      ++sweep.sampled;
    }
    sweep.compiled.push_back(one);
    sweep.digests.push_back(std::move(digest));
  }
  return sweep;
}

}  // namespace cubinery::test
