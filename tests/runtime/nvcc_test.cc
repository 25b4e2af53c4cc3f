// nvcc as a compiler, and programs that are started without a shell.
#include "runtime/jit/nvcc.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "cache/cubin_note.h"
#include "runtime/jit/child_process.h"
#include "runtime/jit/kernel_info.h"
#include "runtime/jit/kernel_symbol.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"

namespace cubinery::nvcc_test {
namespace {

using test::TempDir;

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

constexpr const char* kScale = R"(
extern "C" __global__ void scale(float* x, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= a;
}
)";

std::shared_ptr<const Nvcc> nvcc() {
  static const Result<std::shared_ptr<const Nvcc>> kNvcc = Nvcc::open("", Trust(), 0);
  REQUIRE(kNvcc);  // the toolkit that this was built with has one
  return *kNvcc;
}

CompileInput input(std::string source, std::vector<std::string> more = {}) {
  CompileInput made{.path = "scale.cu",
                    .source = std::move(source),
                    .headers = {},
                    .options = {"-std=c++20", "-arch=sm_90a", "-Xptxas=-v"},
                    .name = "scale"};
  made.options.insert(made.options.end(), more.begin(), more.end());
  return made;
}

// A variable of this process's environment, for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST_CASE("AProgramIsStartedWithoutAShell", "[cpu]") {
  const TempDir temp;
  SECTION("its output comes in order, from both streams") {
    const auto outcome = run_child(
        {"/bin/sh", "-c", "echo a; echo b >&2; echo $X; pwd; cat; exit 7"}, {"X=c d"}, temp.path());
    REQUIRE(outcome);
    CHECK(outcome->exit_code == 7);
    CHECK(outcome->output == "a\nb\nc d\n" + temp.path() + "\n");
  }
  SECTION("arguments are taken as they are") {
    const auto outcome = run_child({"/bin/echo", "$HOME; `ls`", "a  b"}, {}, "/");
    REQUIRE(outcome);
    CHECK(outcome->output == "$HOME; `ls` a  b\n");
  }
  SECTION("what is not there cannot be started") {
    const auto outcome = run_child({temp.path() + "/none"}, {}, "/");
    REQUIRE_FALSE(outcome);
    CHECK(outcome.error().code() == Code::kUnsupported);
    CHECK(has(outcome.error().message(), "No such file"));
  }
  SECTION("a signal that ends it leaves no exit code") {
    const auto outcome = run_child({"/bin/sh", "-c", "kill -9 $$"}, {}, "/");
    REQUIRE(outcome);
    CHECK_FALSE(outcome->exit_code);
  }
  SECTION("signals that this process ignores or blocks are the child's again") {
    const auto before = ::signal(SIGTERM, SIG_IGN);
    const auto outcome = run_child({"/bin/sh", "-c", "kill -TERM $$; echo alive"}, {}, "/");
    ::signal(SIGTERM, before);
    REQUIRE(outcome);
    CHECK(outcome->output.empty());
  }
  SECTION("a process that never waits for children waits for this one's end") {
    const auto before = ::signal(SIGCHLD, SIG_IGN);
    const auto outcome = run_child({"/bin/sh", "-c", "echo done"}, {}, "/");
    ::signal(SIGCHLD, before);
    REQUIRE(outcome);
    CHECK(outcome->output == "done\n");
    CHECK_FALSE(outcome->exit_code);
  }
}

TEST_CASE("RulesOfMakefilesAreRead", "[cpu]") {
  const auto [rule, files] = GENERATE(table<std::string, std::vector<std::string>>({
      {"", {}},
      {"out.cubin", {}},
      {"out.cubin: a.cu", {"a.cu"}},
      {"out.cubin : a.cu \\\n    /usr/include/b.h \\\n c.h\n", {"a.cu", "/usr/include/b.h", "c.h"}},
      {"out.cubin: /a\\ b/c.h d$$e.h f\\\\g.h\n", {"/a b/c.h", "d$e.h", "f\\g.h"}},
  }));
  CHECK(dependencies_in(rule) == files);
}

TEST_CASE("NvccIsLookedForTheHighestVersionFirst", "[cpu]") {
  const TempDir temp;
  for (const char* toolkit : {"cuda-12.9", "cuda-13.0", "cuda-9.2"}) {
    std::filesystem::create_directories(temp.path() + "/usr/local/" + toolkit);
  }
  std::vector<std::string> places = nvcc_places(temp.path());
  for (std::string& place : places) place = place.substr(temp.path().size());
  CHECK(places ==
        std::vector<std::string>{"/usr/local/cuda/bin/nvcc", "/usr/local/cuda-13.0/bin/nvcc",
                                 "/usr/local/cuda-12.9/bin/nvcc", "/usr/local/cuda-9.2/bin/nvcc",
                                 "/opt/cuda/bin/nvcc", "/usr/bin/nvcc"});
}

TEST_CASE("NoNvccIsAnErrorThatSaysWhereItWasLookedFor", "[cpu]") {
  const TempDir temp;
  const auto none = Nvcc::open(temp.path() + "/nvcc", Trust(), 0);
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == Code::kUnsupported);
  CHECK(has(none.error().message(), temp.path() + "/nvcc"));
  test::write_bytes(temp.path() + "/nvcc", "#!/bin/sh\necho hello\n");
  std::filesystem::permissions(temp.path() + "/nvcc", std::filesystem::perms(0777));
  const auto foreign = Nvcc::open(temp.path() + "/nvcc", Trust(), 0);
  REQUIRE_FALSE(foreign);
  CHECK(foreign.error().code() == Code::kUnsupported);
  CHECK(has(foreign.error().message(), "run code as us"));
  std::filesystem::permissions(temp.path() + "/nvcc", std::filesystem::perms(0700));
  const auto other = Nvcc::open(temp.path() + "/nvcc", Trust(), 0);
  REQUIRE_FALSE(other);
  CHECK(has(other.error().message(), "names no version"));
}

TEST_CASE("NvccCompilesAKernel", "[cpu]") {
  const auto output = nvcc()->compile(input(kScale));
  REQUIRE(output);
  const std::optional<CubinNote> note = read_cubin_note(output->cubin);
  REQUIRE(note);
  CHECK(note->arch == "sm_90a");
  CHECK(nvcc()->version().starts_with(note->compiler + "."));
  KernelInfo info;
  CHECK(read_resources(output->log, &info));
  CHECK(info.registers > 0);
  CHECK(read_parameters(output->cubin, "scale")->count == 3);
}

TEST_CASE("NvccSeesNoEnvironment", "[cpu]") {
  const TempDir temp;
  test::write_bytes(temp.path() + "/found.h", "");
  const Variable flags("NVCC_APPEND_FLAGS", "-DBROKEN");
  const Variable more("NVCC_PREPEND_FLAGS", "-DBROKEN");
  const Variable path("CPATH", temp.path().c_str());
  CHECK(nvcc()->compile(input(std::string("#ifdef BROKEN\n#error broken\n#endif\n") + kScale)));
  CHECK_FALSE(nvcc()->compile(input(std::string("#include \"found.h\"\n") + kScale)));
}

TEST_CASE("NvccReadsTheHeadersThatItGetsAndNoOthers", "[cpu]") {
  const TempDir temp;
  test::write_bytes(temp.path() + "/outside.h", "");
  const auto compiled = [&](const std::string& include) {
    CompileInput with = input("#include " + include + "\n" + kScale);
    with.headers = {{"mine/a b.h", "#include \"c.h\"\n"},
                    {"mine/c.h", "#include <mine/d.h>\n"},
                    {"mine/d.h", ""}};
    return nvcc()->compile(with);
  };
  CHECK(compiled("\"mine/a b.h\""));
  CHECK(compiled("<mine/a b.h>"));
  CHECK(compiled("<cuda_bf16.h>"));
  CHECK(compiled("<type_traits>"));
  CHECK_FALSE(compiled("\"d.h\""));
  CHECK_FALSE(compiled("\"out.d\""));
  const auto outside = compiled("\"" + temp.path() + "/outside.h\"");
  if (outside) FAIL("a file outside the folders was read");
  CHECK(outside.error().code() == Code::kCompileFailed);
  CHECK(has(outside.error().message(), "outside.h was read, whose changes would go unseen"));
}

constexpr const char* kSeveral = R"(
enum Size { kFour = 4 };
struct Pair { int first, second; };
namespace ns {
template <class T, int n> __global__ void scale(T* x) { x[threadIdx.x] *= n; }
template <bool on, Size size> __global__ void flag(int* x) { x[0] = on ? size : 0; }
__global__ void add(Pair* x, float) { x->first += 1; }
}
template __global__ void ns::scale<float, 4>(float*);
extern "C" __global__ void plain(int* x) { *x = 1; }
__global__ void twice(int* x) { *x = 2; }
__global__ void twice(float* x) { *x = 2; }
template __global__ void ns::flag<true, kFour>(int*);
template __global__ void ns::scale<int, 8>(int*);
)";

TEST_CASE("KernelsAreFoundByTheirNames", "[cpu]") {
  CompileInput several = input(kSeveral);
  several.name = "plain";
  const auto output = nvcc()->compile(several);
  REQUIRE(output);
  CHECK(output->symbol == "plain");
  const auto [name, symbol] = GENERATE(table<std::string, std::string>({
      {"plain", "plain"},
      {"ns::scale<float, 4>", "_ZN2ns5scaleIfLi4EEEvPT_"},
      {"::ns::scale<float,4>", "_ZN2ns5scaleIfLi4EEEvPT_"},
      {"ns::scale<int, 8>", "_ZN2ns5scaleIiLi8EEEvPT_"},
      {"ns::add", "_ZN2ns3addEP4Pairf"},
      {"ns::flag<true, kFour>", "_ZN2ns4flagILb1EL4Size4EEEvPi"},
  }));
  INFO(name);
  const Result<std::string> found = symbol_of(output->cubin, name);
  REQUIRE(found);
  CHECK(*found == symbol);
  for (const char* none : {"scale", "ns::scale", "ns::scale<double, 4>", "twice", "add", "gone"}) {
    const Result<std::string> refused = symbol_of(output->cubin, none);
    INFO(none);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kCompileFailed);
    CHECK(has(refused.error().message(), "ns::scale<float, 4>(float*)"));
  }
}

TEST_CASE("NvccsErrorsHaveItsLog", "[cpu]") {
  const auto output = nvcc()->compile(input("__global__ void f() { undeclared(); }"));
  REQUIRE_FALSE(output);
  CHECK(output.error().code() == Code::kCompileFailed);
  CHECK(has(output.error().log(), "undeclared"));
}

}  // namespace
}  // namespace cubinery::nvcc_test
