// Kernels of the GPU tests without a GPU: compiles those that a list names into a cache directory,
// for a pack that tests then find them in (scripts/gpu_tests.py).
//
//   gpu_kernels DEFAULTS              prints a line for each template: its name and default fields
//   gpu_kernels ARCH CACHE_DIR <LIST  compiles; the lines of LIST are canonical texts of keys
//
// A field that a line does not name has its default.
#include <atomic>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "gdn_commit/fields.h"
#include "gdn_conv/fields.h"
#include "gdn_decode/fields.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "gdn_verify/fields.h"
#include "gdn_verify_wy/fields.h"
#include "harness/case.h"

namespace cubinery {
namespace {

struct Template {
  std::string name;
  std::string defaults;  // canonical
  std::function<Result<KernelSpec>(const std::string&)> parse;
};

// "gdn_conv;dtype=bf16;warps=4": {"dtype":"bf16","warps":"4"}.
std::string json_of(const std::string& canonical) {
  std::string json = "{";
  for (std::size_t at = canonical.find(';'); at != canonical.npos;) {
    const std::size_t next = canonical.find(';', at + 1);
    std::string field = canonical.substr(at + 1, next - at - 1);
    field.replace(field.find('='), 1, "\":\"");
    json.append(json.size() > 1 ? ",\"" : "\"").append(field).append("\"");
    at = next;
  }
  return json + "}";
}

template <class Key>
Template template_of() {
  return {Fields<Key>::kName, canonical(Key{}), [](const std::string& text) -> Result<KernelSpec> {
            Result<Key> key = from_json<Key>(json_of(text));
            if (!key) return std::move(key).error();
            return spec_of(*key);
          }};
}

const std::vector<Template>& templates() {
  static const std::vector<Template> kTemplates = {
      template_of<GdnCommitKey>(),      template_of<GdnConvKey>(),
      template_of<GdnDecodeKey>(),      template_of<GdnPrefillChunksKey>(),
      template_of<GdnPrefillScanKey>(), template_of<GdnVerifyKey>(),
      template_of<GdnVerifyWyKey>()};
  return kTemplates;
}

Result<KernelSpec> parse(const std::string& line) {
  const std::string name = line.substr(0, line.find(';'));
  for (const Template& one : templates()) {
    if (one.name == name) return one.parse(line);
  }
  return Status(Code::kInvalidKey, line + ": no template of that name");
}

// How many lines failed.
int compile_all(const Context& context, const std::vector<std::string>& lines) {
  std::atomic<int> failed = 0;
  on_all_processors(lines.size(), [&](std::size_t i) {
    const Result<KernelSpec> spec = parse(lines[i]);
    Status status = spec ? Status() : spec.error().clone();
    if (spec) {
      const Result<CompiledKernel> kernel = context.compile(*spec);
      if (!kernel) status = kernel.error().clone();
    }
    if (status.ok()) return;
    ++failed;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  });
  return failed;
}

int run(const std::string& arch, const std::string& cache_dir) {
  Options options;
  options.device = kNoDevice;
  options.arch = arch;
  options.cache_dir = cache_dir;
  options.cache_limit_bytes = std::uint64_t{4} << 30;
  const Result<Context> context = Context::create(options);
  if (!context) {
    std::fprintf(stderr, "%s\n", std::string(context.error().message()).c_str());
    return 1;
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(std::move(line));
  const int failed = compile_all(*context, lines);
  std::printf("%zu kernels for %s, %d failed\n", lines.size(), arch.c_str(), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cubinery

int main(int argc, char** argv) {
  if (argc == 3) return cubinery::run(argv[1], argv[2]);
  if (argc != 2) {
    std::fprintf(stderr, "usage: gpu_kernels DEFAULTS | gpu_kernels ARCH CACHE_DIR <LIST\n");
    return 2;
  }
  for (const auto& one : cubinery::templates()) std::printf("%s\n", one.defaults.c_str());
  return 0;
}
