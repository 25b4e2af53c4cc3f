// Sources with the headers of the toolkit and of CUTLASS, compiled from memory.
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/jit/context_state.h"
#include "runtime/jit/included_files.h"
#include "runtime/jit/nvrtc.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::header_compile_test {
namespace {

namespace fs = std::filesystem;

const Nvrtc& nvrtc() {
  static const auto kNvrtc = Nvrtc::open("", {}, 0);
  REQUIRE(kNvrtc);
  return **kNvrtc;
}

// The toolkit that NVRTC is part of; empty: it has no headers there.
std::vector<std::string> toolkit_roots() {
  std::error_code ignored;
  const fs::path library = fs::canonical(nvrtc().path(), ignored);
  for (fs::path folder = library.parent_path(); folder != folder.parent_path();
       folder = folder.parent_path()) {
    const std::string include = (folder / "include").string();
    if (!fs::exists(include + "/cuda_bf16.h", ignored)) continue;
    return {include, include + "/cccl"};
  }
  return {};
}

struct Compiled {
  IncludeClosure closure;
  CompileOutput output;
};
Compiled compiled(const std::string& source, const std::vector<std::string>& roots,
                  bool share_headers = false, const std::string& name = "") {
  Result<IncludeClosure> closure = IncludedFiles({.everybody = true})
                                       .closure_of({.source = source,
                                                    .path = "k.cu",
                                                    .roots = roots,
                                                    .options = fixed_compile_options()});
  INFO((closure ? "" : std::string(closure.error().message())));
  REQUIRE(closure);
  std::vector<std::string> options = fixed_compile_options();
  options.push_back("--gpu-architecture=sm_90a");
  Result<CompileOutput> output = nvrtc().compile({.path = "k.cu",
                                                  .source = closure->source(source),
                                                  .headers = closure->headers(),
                                                  .options = options,
                                                  .name = name,
                                                  .share_headers = share_headers,
                                                  .absent = closure->absent});
  INFO((output ? "" : std::string(output.error().log())));
  REQUIRE(output);
  return {std::move(*closure), std::move(*output)};
}

TEST_CASE("ToolkitHeadersCompileFromMemory", "[nvrtc]") {
  const std::vector<std::string> roots = toolkit_roots();
  if (roots.empty()) {
    WARN("the toolkit has no headers: skipped");
    return;
  }
  const Compiled bf16 = compiled(
      "#include <cuda_bf16.h>\n"
      "extern \"C\" __global__ void k(__nv_bfloat16* p) { *p = __float2bfloat16(1.0f); }\n",
      roots);
  CHECK(bf16.output.log.find("entry function 'k'") != std::string::npos);
  const Compiled array = compiled(
      "#include <cuda/std/array>\n"
      "extern \"C\" __global__ void k(int* p) { cuda::std::array<int, 2> a{3, 4}; *p = a[1]; }\n",
      roots);
  CHECK(array.closure.files.size() > 50);
  for (const std::string& root : roots) CHECK(array.output.cubin.find(root) == std::string::npos);
}

// With the names that NVRTC knows, each header is the one that -I would have found.
TEST_CASE("HeadersOfOneNameAreToldApart", "[nvrtc]") {
  const test::TempDir dir;
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(dir.path() + "/" + name).parent_path());
    test::write_bytes(dir.path() + "/" + name, text);
  };
  write("0/value.h", "#pragma once\nconstexpr int kTop = 1;\n");
  write("0/a/a.h", "#pragma once\n#include \"value.h\" // beside\n#include \"./value.h\"\n");
  write("0/a/value.h", "#pragma once\nconstexpr int kA = 2;\n");
  write("1/b.h", "#include \"value.h\"\n#include <value.h>\n");
  write("1/value.h", "#pragma once\nconstexpr int kB = 4;\n");
  const Compiled made = compiled(
      "#include <a/a.h>\n#include <b.h>\n#if __has_include(<a.h>)\n#error found\n#endif\n"
      "static_assert(kTop + kA + kB == 7);\nextern \"C\" __global__ void k() {}\n",
      {dir.path() + "/0", dir.path() + "/1"});
  CHECK(made.closure.absent == std::vector<std::string>{"a.h"});
}

TEST_CASE("PrecompiledHeadersAreThoseOfTheSource", "[nvrtc]") {
  const test::TempDir dir;
  std::string many = "// of " + dir.path() + "\n";  // not what another run has made
  for (int i = 0; i < 500; ++i) {
    many += "struct S" + std::to_string(i) + " { int x; };\n";
  }
  const auto source = [](int i) {
    return "// " + std::to_string(i) + "\n#include <many.h>\nextern \"C\" __global__ void k" +
           std::to_string(i) + "(int* p) { *p = kValue + " + std::to_string(i) + "; }\n";
  };
  test::write_bytes(dir.path() + "/many.h",
                    many +
                        "#if __has_include(<late.h>)\n#include <late.h>\n#else\n"
                        "constexpr int kValue = 1111;\n#endif\n");
  const std::vector<std::string> roots = {dir.path()};
  const auto check = [&](int i, HeaderSharing expected) {
    const Compiled alone = compiled(source(i), roots, false, "k" + std::to_string(i));
    CHECK(alone.output.headers == HeaderSharing::kNone);
    const std::string name = "k" + std::to_string(i);
    const Compiled shared = compiled(source(i), roots, true, name);
    CHECK(shared.output.symbol == name);
    CHECK(shared.output.headers == expected);
    CHECK(shared.output.cubin == alone.output.cubin);
  };
  check(1, HeaderSharing::kMade);
  check(2, HeaderSharing::kUsed);
  SECTION("another text") {
    test::write_bytes(dir.path() + "/many.h", many + "constexpr int kValue = 2222;\n");
    check(3, HeaderSharing::kMade);
    check(4, HeaderSharing::kUsed);
  }
  SECTION("a header that appears") {
    test::write_bytes(dir.path() + "/late.h", "constexpr int kValue = 3333;\n");
    check(3, HeaderSharing::kMade);
  }
  SECTION("a source with a fault") {
    const Result<CompileOutput> wrong = nvrtc().compile({.path = "k.cu",
                                                         .source = "#include \"x.h\"\nint x = ;\n",
                                                         .headers = {{"x.h", "int y;\n"}},
                                                         .options = {"-default-device"},
                                                         .name = "",
                                                         .share_headers = true});
    REQUIRE_FALSE(wrong);
    CHECK_THAT(std::string(wrong.error().log()), ContainsSubstring("k.cu(2): error"));
  }
  for (const auto& file : fs::directory_iterator("/tmp")) {
    CHECK(file.path().filename().string().find("cubinery-pch") == std::string::npos);
  }
}

// CUBINERY_TEST_CUTLASS: the include folder of a CUTLASS.
TEST_CASE("CuTeCompilesFromMemory", "[nvrtc]") {
  const char* cutlass = ::getenv("CUBINERY_TEST_CUTLASS");
  std::vector<std::string> roots = toolkit_roots();
  if (cutlass == nullptr || roots.empty()) {
    WARN("CUBINERY_TEST_CUTLASS is not set, or the toolkit has no headers: skipped");
    return;
  }
  roots.insert(roots.begin(), cutlass);
  const auto source = [](const std::string& name) {
    return "#include <cute/tensor.hpp>\nusing namespace cute;\n"
           "extern \"C\" __global__ void " +
           name +
           "(float* p) {\n"
           "  Tensor t = make_tensor(make_gmem_ptr(p), make_shape(Int<4>{}, Int<8>{}));\n"
           "  t(threadIdx.x % 4, 1) = float(size(t));\n}\n";
  };
  const Compiled first = compiled(source("a"), roots, true);
  CHECK(first.output.headers == HeaderSharing::kMade);
  CHECK(first.closure.files.size() > 300);
  const Compiled second = compiled(source("b"), roots, true);
  CHECK(second.output.headers == HeaderSharing::kUsed);
  CHECK(second.output.cubin == compiled(source("b"), roots).output.cubin);
  for (const char* header :
       {"cutlass/cutlass.h", "cutlass/gemm/collective/collective_builder.hpp"}) {
    INFO(header);
    compiled("#include <" + std::string(header) + ">\nextern \"C\" __global__ void k() {}\n", roots,
             true);
  }
}

}  // namespace
}  // namespace cubinery::header_compile_test
