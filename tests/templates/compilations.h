// Kernels to compile, and what is wrong with those that compile with warnings or spills.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/fields.h"
#include "runtime/jit/on_threads.h"
#include "tests/catch.h"
#include "tests/pairwise.h"

namespace cubinery::test {

struct Compilation {
  std::string arch;
  KernelSpec spec;
};
using Compilations = std::vector<Compilation>;

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
  options.cache_dir = CUBINERY_COMPILED_DIR;
  options.cache_limit_bytes = std::uint64_t{4} << 30;
  Result<Context> context = Context::create(options);
  REQUIRE(context);
  return *std::move(context);
}

// Checks that all compile, without warnings and without spills.
inline void check_compile(const Compilations& all) {
  constexpr std::size_t kThreads = 2;
  std::map<std::string, Context> contexts;
  std::set<std::pair<std::string, std::string>> seen;
  Compilations once;
  for (const Compilation& one : all) {
    if (!seen.emplace(one.arch, one.spec.canonical).second) continue;
    once.push_back(one);
    if (!contexts.contains(one.arch)) contexts.emplace(one.arch, compiler(one.arch));
  }
  std::vector<std::string> faults(once.size());
  on_threads(once.size(), kThreads,
             [&](std::size_t n) { faults[n] = fault(contexts.at(once[n].arch), once[n].spec); });
  for (std::size_t n = 0; n < once.size(); ++n) {
    if (faults[n].empty()) continue;
    FAIL_CHECK(once[n].arch << ": " << once[n].spec.canonical << ": " << faults[n]);
  }
  CHECK_FALSE(once.empty());
}

}  // namespace cubinery::test
