#include "runtime/jit/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "codegen/bundle.h"
#include "codegen/source_name.h"
#include "codegen/source_options.h"
#include "runtime/jit/included_files.h"
#include "runtime/jit/options_text.h"
#include "runtime/jit/template_source.h"

namespace cubinery {
namespace {

std::vector<std::string> with_arch(std::vector<std::string> options, const std::string& arch) {
  options.push_back("--gpu-architecture=" + arch);
  return options;
}

CompileInput input_of(const TemplateSource& source, const KernelSpec& spec,
                      const std::string& arch) {
  CompileInput input{.path = source.path,
                     .source = source.text,
                     .headers = {source.files.begin(), source.files.end()},
                     .options = with_arch(fixed_compile_options(), arch),
                     .name = {}};
  input.options.push_back("-DCUBINERY_KEY=" + spec.initializer);
  return input;
}

// Where the library has the kernel and no folder may replace it, nothing is read before it has to
// be compiled.
Status add_template(const KernelSpec& spec, const Options& options, const std::string& arch,
                    Recipe* recipe) {
  const EmbeddedDigests* embedded = embedded_digests(spec.kernel);
  if (embedded != nullptr && options.template_dirs.empty()) {
    recipe->identity.template_digest = embedded->own;
    recipe->identity.headers_digest = embedded->headers;
    recipe->origin = fmt::format("<embedded>/{0}/{0}.cu", spec.kernel);
    recipe->input = [spec, arch]() -> Result<CompileInput> {
      const Result<TemplateSource> source = find_template(spec.kernel, {});
      if (!source) return source.error().clone();
      return input_of(*source, spec, arch);
    };
    return {};
  }
  Result<TemplateSource> source =
      find_template(spec.kernel, options.template_dirs, trust_of(options));
  if (!source) return std::move(source).error();
  recipe->identity.template_digest = source->template_digest;
  recipe->identity.headers_digest = source->headers_digest;
  recipe->origin = source->origin;
  recipe->input = [source = *std::move(source), spec, arch]() -> Result<CompileInput> {
    return input_of(source, spec, arch);
  };
  return {};
}

Status check_text(const KernelSource& source, const std::string& kernel) {
  if (source.source.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("source of {} is empty; accepted: CUDA C++ with a __global__ function",
                    kernel));
  }
  const std::size_t zero = source.source.find('\0');
  if (zero == std::string::npos) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("source of {} has a zero byte at {}; accepted: text", kernel, zero));
}

Result<IncludeClosure> closure_of(const KernelSource& source,
                                  const std::vector<std::string>& options, const std::string& path,
                                  IncludedFiles& included) {
  return included.closure_of(
      {.source = source.source, .path = path, .roots = source.includes, .options = options});
}

// The digest of the closure that the folders have as when an entry was made; empty: of none.
std::string still_included(const KernelSource& source, IncludedFiles& included,
                           std::vector<KnownClosure> known) {
  for (KnownClosure& closure : known) {
    if (included.still_give(source.includes, closure.questions)) return std::move(closure.digest);
  }
  return "";
}

CompileInput input_of(const IncludeClosure& closure, const KernelSource& source,
                      const std::string& path, const std::vector<std::string>& options,
                      const std::string& arch) {
  return {.path = path,
          .source = closure.source(source.source),
          .headers = closure.headers(),
          .options = with_arch(options, arch),
          .name = source.name,
          .share_headers = source.share_headers,
          .absent = closure.absent,
          .questions = questions_text(closure, source.includes.size())};
}

Status changed_meanwhile(const std::string& path) {
  return Status(Code::kIo, fmt::format("{}: what it includes has changed since it was asked for; "
                                       "ask again",
                                       path));
}

}  // namespace

const std::vector<std::string>& fixed_compile_options(Compiler compiler) {
  static const std::vector<std::string> kOfNvcc = {"-std=c++20", "-Xptxas=-v"};
  static const std::vector<std::string> kOfNvrtc = {
      "-std=c++20",
      "-default-device",
      "--no-source-include",         // no file of the working directory that no identity names
      "--modify-stack-limit=false",  // the default changes a limit of the whole process
      "-Xptxas=-v",                  // resources in the log
      "--no-cache",                  // its own cache would swallow the log; 12.8 has none
  };
  return compiler == Compiler::kNvcc ? kOfNvcc : kOfNvrtc;
}

Result<Recipe> recipe_of(const KernelSpec& spec, const Options& options, const std::string& arch) {
  if (is_source_key(spec.canonical) && spec.kernel != "source") {
    return Status(Code::kInvalidKey,
                  fmt::format("key {} of kernel {} is one of a text; accepted: it begins with the "
                              "kernel's name",
                              spec.canonical, spec.kernel));
  }
  Recipe recipe{
      .identity = {.kernel = spec.kernel,
                   .key = spec.canonical,
                   .template_digest = {},
                   .headers_digest = {},
                   // The value too: whoever writes a manifest could give a key's name to another
                   // key's code.
                   .options = fmt::format("{}{}{}", fmt::join(fixed_compile_options(), " "),
                                          kKeyValueOption, digest_of(spec.initializer)),
                   .arch = arch,
                   .nvrtc = {}},
      .origin = {},
      .input = {},
      .symbol = spec.kernel,
      .param_bytes = spec.param_bytes,
      .threads = spec.threads,
      .shared_bytes = spec.shared_bytes};
  CUBINERY_RETURN_IF_ERROR(add_template(spec, options, arch, &recipe));
  return recipe;
}

Result<Recipe> recipe_of(const KernelSource& source, IncludedFiles& included,
                         const std::string& arch, const KnownClosures& known) {
  Result<std::string> plain = plain_name(source.name);
  if (!plain) return std::move(plain).error();
  CUBINERY_RETURN_IF_ERROR(check_text(source, *plain));
  Result<std::vector<std::string>> compile_options =
      source_options(fixed_compile_options(source.compiler), source.options, source.compiler);
  if (!compile_options) return std::move(compile_options).error();
  // No text's kernel is called "source": see is_source_key().
  const std::string kernel = *plain == "source" ? "source_" : *plain;
  Recipe recipe{.identity = {.kernel = kernel,
                             .key = source_key(source),
                             .template_digest = digest_of(source.source),
                             .headers_digest = {},
                             .options = options_text(*compile_options),
                             .arch = arch,
                             .nvrtc = {}},
                .origin = kernel + ".cu",
                .input = {},
                .symbol = {},
                .param_bytes = {},
                .allow_spills = source.allow_spills};
  if (known && !source.includes.empty()) {
    recipe.identity.headers_digest = still_included(source, included, known(recipe.identity));
  }
  std::optional<IncludeClosure> found;
  if (recipe.identity.headers_digest.empty()) {
    Result<IncludeClosure> closure = closure_of(source, *compile_options, recipe.origin, included);
    if (!closure) return std::move(closure).error();
    recipe.identity.headers_digest = closure->digest;
    found = *std::move(closure);
  }
  recipe.input = [&included, path = recipe.origin, source, arch, found = std::move(found),
                  given = *std::move(compile_options),
                  digest = recipe.identity.headers_digest]() -> Result<CompileInput> {
    if (found) return input_of(*found, source, path, given, arch);
    Result<IncludeClosure> closure = closure_of(source, given, path, included);
    if (!closure) return std::move(closure).error();
    if (closure->digest != digest) return changed_meanwhile(path);
    return input_of(*closure, source, path, given, arch);
  };
  return recipe;
}

}  // namespace cubinery
