// What NVRTC must refuse, and how the refusal reads.
#include <algorithm>
#include <string>
#include <string_view>

#include "cache/version_order.h"
#include "codegen/arch.h"
#include "cubinery/context.h"
#include "cubinery/fields.h"
#include "gdn_decode/fields.h"
#include "runtime/jit/context_state.h"
#include "runtime/jit/nvrtc.h"
#include "runtime/jit/template_source.h"
#include "tests/catch.h"
#include "tests/nvrtc_path.h"

namespace cubinery {
namespace {

const Nvrtc& nvrtc() {
  static const std::shared_ptr<const Nvrtc> kNvrtc =
      Nvrtc::open(test::nvrtc_path(), {.everybody = true}, 0).value();
  return *kNvrtc;
}

// gdn_decode with this text as its key.
Result<CompileOutput> compile(const std::string& key, const std::string& arch = "sm_90a") {
  const Result<TemplateSource> source = find_template("gdn_decode", {});
  REQUIRE(source);
  CompileInput input{.path = source->path,
                     .source = source->text,
                     .headers = {source->files.begin(), source->files.end()},
                     .options = fixed_compile_options(),
                     .name = {}};
  input.options.push_back("--gpu-architecture=" + arch);
  input.options.push_back("-DCUBINERY_KEY=" + key);
  return nvrtc().compile(input);
}

// Whether the key is refused with kCompileFailed and `text` in the log.
bool refused(const std::string& key, std::string_view text) {
  const Result<CompileOutput> output = compile(key);
  REQUIRE_FALSE(output);
  CHECK(output.error().code() == Code::kCompileFailed);
  CHECK(output.error().message() ==
        "gdn_decode/gdn_decode.cu: compile failed: "
        "NVRTC_ERROR_COMPILATION (NVRTC " +
            nvrtc().version() + ")");
  INFO(output.error().log());
  CHECK(output.error().log().find("gdn_decode/gdn_decode.cu(") != std::string::npos);
  return output.error().log().find(text) != std::string::npos;
}

TEST_CASE("TheInitializerOfAKeyCompiles", "[nvrtc]") {
  const Result<CompileOutput> output = compile(initializer(GdnDecodeKey{}));
  REQUIRE(output);
  CHECK(output->cubin.starts_with("\177ELF"));
  CHECK(output->log.find("entry function 'gdn_decode' for 'sm_90a'") != std::string::npos);
  // Through NVRTC's or the driver's cache the second log would be another.
  CHECK(compile(initializer(GdnDecodeKey{}))->cubin == output->cubin);
  CHECK(compile("{}")->cubin == output->cubin);
}

TEST_CASE("AMisspeltFieldDoesNotCompile", "[nvrtc]") {
  CHECK(refused("{.key_dimm=128}", "has no field \"key_dimm\""));
}

TEST_CASE("FieldsOutOfOrderDoNotCompile", "[nvrtc]") {
  CHECK(refused("{.value_dim=128,.key_dim=128}", "order"));
}

TEST_CASE("AnUnknownEnumeratorDoesNotCompile", "[nvrtc]") {
  CHECK(refused("{.dtype=cubinery::DType::kF8}", "has no member \"kF8\""));
}

TEST_CASE("ANumberForAnEnumerationDoesNotCompile", "[nvrtc]") {
  CHECK(
      refused("{.dtype=1}", "cannot be used to initialize an entity of type \"cubinery::DType\""));
}

// The host's own rules are compiled into the template.
TEST_CASE("AKeyOutsideTheRulesDoesNotCompile", "[nvrtc]") {
  const std::string text = "gdn_decode: key outside the tuning space";
  CHECK(refused("{.key_dim=100}", text));
  CHECK(refused("{.warp_v=12}", text));
  CHECK(refused("{.states={.dtype=cubinery::DType::kI32}}", text));
}

TEST_CASE("AnArchitectureThatNvrtcDoesNotKnowIsUnsupported", "[nvrtc]") {
  const Result<CompileOutput> output = compile("{}", "sm_42");
  REQUIRE_FALSE(output);
  CHECK(output.error().code() == Code::kUnsupported);
  CHECK(output.error().message().starts_with("gdn_decode/gdn_decode.cu: NVRTC " +
                                             nvrtc().version() + " does not take the options "));
  CHECK(output.error().message().find("--gpu-architecture=sm_42") != std::string::npos);
}

// Every one that NVRTC of this version does not know yet names the version that does.
TEST_CASE("AnArchitectureOfANewerNvrtcNamesThat", "[nvrtc]") {
  for (const std::string& arch : known_architectures()) {
    const Result<CompileOutput> output = compile("{}", arch);
    const std::string_view since = nvrtc_since(parse_arch(arch).value());
    INFO(arch);
    REQUIRE(output.has_value() == !version_less(nvrtc().version(), since));
    if (output) continue;
    CHECK(output.error().code() == Code::kUnsupported);
    CHECK(output.error().message() == "gdn_decode/gdn_decode.cu: NVRTC " + nvrtc().version() +
                                          " does not know " + arch + "; NVRTC " +
                                          std::string(since) + " and newer do");
  }
}

TEST_CASE("TheOpenLibraryIsNamed", "[nvrtc]") {
  CHECK(nvrtc().path().find("libnvrtc") != std::string::npos);
  CHECK(nvrtc().path().starts_with("/"));
  // "13.0.88": two digits are nvrtcVersion()'s, the third tells builds apart.
  CHECK(std::count(nvrtc().version().begin(), nvrtc().version().end(), '.') == 2);
}

}  // namespace
}  // namespace cubinery
