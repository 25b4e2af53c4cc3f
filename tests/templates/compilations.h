// Kernels to compile, and what is wrong with those that compile with warnings or spills.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cache/env.h"
#include "cubinery/context.h"
#include "cubinery/fields.h"
#include "runtime/jit/on_threads.h"
#include "tests/catch.h"
#include "tests/nvrtc_path.h"
#include "tests/pairwise.h"
#include "tests/templates/clean_kernels.h"

namespace cubinery::test {

inline void add(Compilations more, Compilations* all) {
  for (Compilation& one : more) all->push_back(std::move(one));
}

// The kernels of every problem; of each problem the first `limit`.
template <class Problem>
Compilations kernels_of(const std::vector<Problem>& problems, const std::string& arch,
                        std::size_t limit = SIZE_MAX) {
  Compilations all;
  for (const Problem& problem : problems) {
    INFO(problem.to_json());
    Result<std::vector<KernelSpec>> found = problem.kernels(arch);
    REQUIRE(found);
    found->resize(std::min(found->size(), limit));
    for (KernelSpec& spec : *found) all.push_back({arch, std::move(spec)});
  }
  return all;
}

// The kernel of every choice of the tuned fields.
template <class Key>
Compilations candidates_of(const Key& key, const std::string& arch) {
  Compilations all;
  for_each_candidate(key, [&](const Key& candidate) {
    all.push_back({arch, spec_of(candidate).value()});
  });
  return all;
}

// "gdn_conv;dtype=bf16;warps=4": "bf16", "4".
inline std::vector<std::string> values_of(const KernelSpec& spec) {
  std::vector<std::string> values;
  const std::string& text = spec.canonical;
  for (std::size_t at = text.find('='); at != text.npos; at = text.find('=', at + 1)) {
    values.push_back(text.substr(at + 1, text.find(';', at) - at - 1));
  }
  return values;
}

// Of each template's kernels those that have every pair of two fields' values that any of them has;
// the architecture counts as a field.
inline Compilations pairs_of(const Compilations& all) {
  std::map<std::string, Compilations> by_template;
  for (const Compilation& one : all) by_template[one.spec.kernel].push_back(one);
  Compilations chosen;
  for (const auto& [name, some] : by_template) {
    std::vector<std::vector<std::string>> rows;
    for (const Compilation& one : some) {
      rows.push_back(values_of(one.spec));
      rows.back().push_back(one.arch);
    }
    for (const std::size_t row : pairwise(rows)) chosen.push_back(some[row]);
  }
  return chosen;
}

// What is wrong with the kernel; empty when nothing is.  An entry of the disk cache says as much of
// its kernel as the compiler did.
inline std::string fault(const Context& context, const KernelSpec& spec) {
  const Result<CompiledKernel> kernel = context.compile(spec);
  if (!kernel)
    return std::string(kernel.error().message()).append("\n").append(kernel.error().log());
  const KernelInfo& info = kernel->info;
  if (!info.log.empty()) return "log: " + info.log;
  if (info.registers < 1 || info.registers > 255) {
    return std::to_string(info.registers) + " registers";
  }
  if (info.spill_store_bytes > 0 || info.spill_load_bytes > 0) {
    return "spills " + std::to_string(info.spill_store_bytes) + " + " +
           std::to_string(info.spill_load_bytes) + " bytes";
  }
  return "";
}

// Compiles for `arch`.  The cache stays in the build directory: another run compiles what its
// identities say has changed.
inline Context compiler(const std::string& arch) {
  Options options;
  options.device = kNoDevice;
  options.arch = arch;
  options.nvrtc_path = nvrtc_path();
  options.cache_dir = CUBINERY_COMPILED_DIR;
  options.cache_limit_bytes = std::uint64_t{4} << 30;
  Result<Context> context = Context::create(options);
  REQUIRE(context);
  return *std::move(context);
}

// Kernels that need not be compiled: the record's, none where CUBINERY_CLEAN_KERNELS_OUT is set.
inline const CleanKernels& clean_kernels() {
  static const CleanKernels kClean = [] {
    if (std::getenv("CUBINERY_CLEAN_KERNELS_OUT") != nullptr) return CleanKernels();
    const Result<std::string> text = read_file(CUBINERY_TEST_DIR "/data/clean_kernels.txt");
    REQUIRE(text);
    Result<CleanKernels> clean = CleanKernels::parse(*text);
    if (!clean) FAIL(clean.error().message());
    return *std::move(clean);
  }();
  return kClean;
}

// scripts/write_clean_kernels.sh makes the record of what this appends.
inline void append_clean_kernels(const std::string& nvrtc,
                                 const std::vector<std::string>& digests) {
  const char* path = std::getenv("CUBINERY_CLEAN_KERNELS_OUT");
  if (path == nullptr) return;
  std::ofstream file(path, std::ios::app);
  for (const std::string& digest : digests) file << nvrtc << " " << digest << "\n";
  CHECK(file.flush().good());
}

// A sweep's kernels with what is wrong with them, in their order.
inline std::vector<std::string> faults(const Compilations& all) {
  constexpr std::size_t kThreads = 2;
  std::map<std::string, Context> contexts;
  for (const Compilation& one : all) {
    if (!contexts.contains(one.arch)) contexts.emplace(one.arch, compiler(one.arch));
  }
  std::vector<std::string> found(all.size());
  on_threads(all.size(), kThreads,
             [&](std::size_t n) { found[n] = fault(contexts.at(all[n].arch), all[n].spec); });
  return found;
}

// Checks that all compile, without warnings and without spills; of those that the record knows to,
// a sample.
inline void check_compile(const Compilations& all) {
  REQUIRE_FALSE(all.empty());
  const std::string nvrtc = compiler(all.front().arch).nvrtc_version().value();
  const Sweep sweep = sweep_of(all, clean_kernels(), nvrtc);
  const std::vector<std::string> found = faults(sweep.compiled);
  std::vector<std::string> clean;
  for (std::size_t n = 0; n < found.size(); ++n) {
    const Compilation& one = sweep.compiled[n];
    if (found[n].empty()) {
      clean.push_back(sweep.digests[n]);
    } else {
      FAIL_CHECK(one.arch << ": " << one.spec.canonical << ": " << found[n]);
    }
  }
  append_clean_kernels(nvrtc, clean);
  fmt::print("{} kernels: {} known to be clean and not compiled, {} compiled ({} of them known)\n",
             sweep.known + found.size(), sweep.known, found.size(), sweep.sampled);
}

}  // namespace cubinery::test
