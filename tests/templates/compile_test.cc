// What operators choose compiles without warnings and without spills: all of it for the models that
// engines serve, and of the problems that have every option and odd size between them a cover of
// the pairs of fields.  The cases that are hidden, [full], compile those problems' kernels all.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/version_order.h"
#include "codegen/arch.h"
#include "gdn_prefill_scan/fields.h"
#include "results/embedded.h"
#include "runtime/gdn/prefill/paths.h"
#include "runtime/registry/operators.h"
#include "tests/model_configs.h"
#include "tests/templates/compilations.h"
#include "tests/templates/problem_lists.h"

namespace cubinery {
namespace {

using test::add;
using test::check_compile;
using test::Compilation;
using test::Compilations;
using test::kernels_of;
using test::pairs_of;

// The kernels of a prefill problem but the narrower scans, which do the same with fewer warps.
constexpr std::size_t kChunksAndWidestScan = 2;

// One architecture of each family that templates tell apart.
constexpr const char* kFamilies[] = {"sm_80", "sm_90a", "sm_100a", "sm_120a"};

template <class Problem>
Compilations for_families(const std::vector<Problem>& problems, std::size_t limit = SIZE_MAX) {
  Compilations all;
  for (const std::string arch : kFamilies) add(kernels_of(problems, arch, limit), &all);
  return all;
}

// The kernels of the problem, where a path computes it.
void add_kernels(const Problem& problem, const std::string& arch, Compilations* all) {
  Result<std::vector<KernelSpec>> found = kernels(problem, arch, {});
  if (!found) {
    INFO(found.error().message());
    CHECK(found.error().code() == Code::kUnsupported);
    return;
  }
  for (KernelSpec& spec : *found) all->push_back({arch, std::move(spec)});
}

// Every form of every published model, on 1 to 16 GPUs.
const std::vector<Problem>& model_problems() {
  static const std::vector<Problem> kProblems = [] {
    std::vector<Problem> all;
    std::set<std::string> seen;
    for (const auto& model :
         std::filesystem::directory_iterator(CUBINERY_TEST_DIR "/data/models")) {
      if (!model.is_directory()) continue;
      const std::string config = test::config_of(model.path().filename().string());
      for (const int tp : {1, 2, 4, 8, 16}) {
        const Result<std::vector<Problem>> problems = problems_for_model(config, tp);
        if (!problems) continue;  // heads that tp does not divide
        for (const Problem& problem : *problems) {
          if (!check(problem).ok()) continue;  // left out
          if (seen.insert(operator_of(problem) + to_json(problem)).second) all.push_back(problem);
        }
      }
    }
    return all;
  }();
  return kProblems;
}

Compilations of_models(const std::string& arch) {
  Compilations all;
  for (const Problem& problem : model_problems()) add_kernels(problem, arch, &all);
  return all;
}

// Those that the NVRTC of the tests compiles for: all of them with one of CUDA 13.
std::vector<std::string> compiled_architectures() {
  std::vector<std::string> names = known_architectures();
  const std::string nvrtc = test::compiler(names.front()).nvrtc_version().value();
  std::erase_if(names, [&](const std::string& name) {
    return version_less(nvrtc, nvrtc_since(parse_arch(name).value()));
  });
  CHECK(names.size() >= 7);
  CHECK((nvrtc.starts_with("12.") || names.size() == known_architectures().size()));
  return names;
}

// One kernel of each template for each architecture, another one for the next.
Compilations of_models_in_turn() {
  Compilations all;
  std::map<std::string, std::size_t> turn;
  for (const std::string& arch : compiled_architectures()) {
    std::map<std::string, Compilations> by_template;
    for (Compilation& one : of_models(arch)) {
      by_template[one.spec.kernel].push_back(std::move(one));
    }
    for (const auto& [name, some] : by_template) all.push_back(some[turn[name]++ % some.size()]);
  }
  return all;
}

// "key_dim=128;dtype=bf16" as JSON.
std::string json_of(const std::string& problem) {
  std::string json = "{\"";
  for (const char c : problem) {
    if (c == '=') {
      json += "\":\"";
    } else if (c == ';') {
      json += "\",\"";
    } else {
      json += c;
    }
  }
  return json + "\"}";
}

// The problems that results are inside the library for.
Compilations of_results() {
  Compilations all;
  std::set<std::string> seen;
  for (const TuningResult& result : embedded_results()) {
    const Setting& setting = result.setting;
    if (!seen.insert(setting.op + setting.problem + setting.gpu.arch).second) continue;
    const Result<Problem> problem = parse_problem(setting.op, json_of(setting.problem));
    INFO(setting.problem);
    REQUIRE(problem);
    add_kernels(*problem, setting.gpu.arch, &all);
  }
  return all;
}

void add_fp8_decode_problems(Compilations* all) {
  add(kernels_of(test::fp8_decode_options(), "sm_90a"), all);
  add(kernels_of(test::fp8_decode_head_sizes(DType::kF8E5M2), "sm_89"), all);
  add(kernels_of(test::fp8_decode_head_sizes(DType::kF8E4M3), "sm_90a"), all);
  add(kernels_of(test::fp8_decode_head_sizes(DType::kF8E5M2), "sm_100a"), all);
  add(kernels_of(test::fp8_decode_head_sizes(DType::kF8E4M3), "sm_120a"), all);
}

void add_convolved_decode_problems(Compilations* all) {
  std::vector<gdn::DecodeProblem> problems = test::convolved_decodes();
  for (const std::string arch : {"sm_90a", "sm_100a"}) add(kernels_of(problems, arch), all);
  for (gdn::DecodeProblem& problem : problems) problem.heads.v = problem.heads.k;
  std::erase_if(problems, [](const auto& problem) { return !problem.kernels("sm_80"); });
  CHECK(problems.size() > 8);
  add(kernels_of(problems, "sm_80"), all);
}

Compilations decode_problems() {
  Compilations all = for_families(test::decode_options());
  add(for_families(test::decode_head_sizes()), &all);
  add(kernels_of(test::square_decode_head_sizes(), "sm_90a"), &all);
  for (const std::string arch : {"sm_80", "sm_90a"}) {
    add(kernels_of(test::normed_decode_head_sizes(), arch), &all);
  }
  add_fp8_decode_problems(&all);
  add_convolved_decode_problems(&all);
  return all;
}

// Scans that problems with each option, and those of other head sizes, have on Hopper's paths.
Compilations wgmma_scans() {
  const Target target = typical_target({9, 0, 'a'});
  std::vector<gdn::PrefillProblem> problems = test::prefill_options();
  for (const auto& [key_dim, value_dim] : {std::pair{64, 64}, {64, 128}, {96, 192}, {32, 256}}) {
    problems.push_back({.key_dim = key_dim, .value_dim = value_dim, .varlen = true});
  }
  Compilations all;
  const std::vector<const gdn::PrefillPath*> paths = {
      &gdn::prefill_hopper(), &gdn::prefill_hopper_segments(), &gdn::prefill_hopper_fused(),
      &gdn::prefill_hopper_fused_segments()};
  for (const gdn::PrefillProblem& problem : problems) {
    for (const gdn::PrefillPath* path : paths) {
      for (const auto& candidate : path->defaults(problem, target)) {
        for (const KernelSpec& spec : candidate->kernels()) {
          const bool is_of_decays = spec.canonical.find("only_decays=true") != std::string::npos;
          if (spec.kernel == Fields<GdnPrefillScanKey>::kName || is_of_decays) {
            all.push_back({"sm_90a", spec});
          }
        }
      }
    }
  }
  CHECK(all.size() > 40);
  return all;
}

Compilations prefill_problems() {
  Compilations all = for_families(test::prefill_extremes(), kChunksAndWidestScan);
  add(kernels_of(test::prefill_options(), "sm_90a", kChunksAndWidestScan), &all);
  add(kernels_of(test::prefill_head_sizes(), "sm_90a", kChunksAndWidestScan), &all);
  add(for_families(test::channel_prefills(), kChunksAndWidestScan), &all);
  add(wgmma_scans(), &all);
  return all;
}

Compilations verify_problems() {
  Compilations all = for_families(test::served_verifications());
  add(kernels_of(test::verify_options(), "sm_90a"), &all);
  add(kernels_of(test::verify_head_sizes(), "sm_120a"), &all);
  return all;
}

Compilations commit_problems() {
  Compilations all = for_families(test::served_commits());
  add(kernels_of(test::commit_options(), "sm_90a"), &all);
  for (const std::string arch : {"sm_80", "sm_120a"}) {
    add(kernels_of(test::commit_head_sizes(16), arch), &all);
  }
  return all;
}

Compilations conv_problems() {
  Compilations all = kernels_of(test::conv_options(), "sm_90a");
  add(kernels_of(test::conv_head_sizes(), "sm_90a"), &all);
  return all;
}

TEST_CASE("KernelsOfModelsAndResultsCompile", "[nvrtc][sweep]") {
  Compilations all = of_results();
  for (const std::string arch : kFamilies) add(of_models(arch), &all);
  check_compile(all);
}

TEST_CASE("OneModelKernelOfEachTemplateCompilesForEveryArchitecture", "[nvrtc][sweep]") {
  check_compile(of_models_in_turn());
}
// As tests/nvrtc_of_cuda12.sh compiles with other NVRTCs: those, and of what is hardest to compile
// every eighth kernel.
TEST_CASE("SomeKernelsOfEachTemplateCompile", "[.some][nvrtc]") {
  Compilations all = of_models_in_turn();
  const Compilations scans = wgmma_scans();
  for (std::size_t n = 0; n < scans.size(); n += 8) all.push_back(scans[n]);
  check_compile(all);
}
TEST_CASE("AllKernelsOfModelsCompileForEveryArchitecture", "[.full][nvrtc]") {
  for (const std::string& arch : known_architectures()) check_compile(of_models(arch));
}

TEST_CASE("PairsOfServedConvProblemsCompileForEveryFamily", "[nvrtc][sweep]") {
  check_compile(pairs_of(for_families(test::served_convs())));
}
TEST_CASE("AllServedConvProblemsCompileForEveryArchitecture", "[.full][nvrtc]") {
  for (const std::string& arch : known_architectures()) {
    check_compile(kernels_of(test::served_convs(), arch));
  }
}

TEST_CASE("PairsOfDecodeOptionsAndHeadSizesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(decode_problems()));
}
TEST_CASE("AllDecodeOptionsAndHeadSizesCompile", "[.full][nvrtc]") {
  check_compile(decode_problems());
}

// Serialised wgmma is in the log, which is a fault.
TEST_CASE("PairsOfPrefillOptionsAndHeadSizesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(prefill_problems()));
}
TEST_CASE("AllPrefillOptionsAndHeadSizesCompile", "[.full][nvrtc]") {
  check_compile(prefill_problems());
}

TEST_CASE("PairsOfVerifyOptionsAndHeadSizesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(verify_problems()));
}
TEST_CASE("AllVerifyOptionsAndHeadSizesCompile", "[.full][nvrtc]") {
  check_compile(verify_problems());
}

TEST_CASE("PairsOfCommitOptionsAndHeadSizesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(commit_problems()));
}
TEST_CASE("AllCommitOptionsAndHeadSizesCompile", "[.full][nvrtc]") {
  check_compile(commit_problems());
}

TEST_CASE("PairsOfConvOptionsAndHeadSizesCompile", "[nvrtc][sweep]") {
  check_compile(pairs_of(conv_problems()));
}
TEST_CASE("AllConvOptionsAndHeadSizesCompile", "[.full][nvrtc]") { check_compile(conv_problems()); }

}  // namespace
}  // namespace cubinery
