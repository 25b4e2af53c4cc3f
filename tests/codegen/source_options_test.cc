// The compiler's options and the names that a kernel given as text may have.
#include "codegen/source_options.h"

#include <string>
#include <vector>

#include "codegen/source_name.h"
#include "tests/catch.h"

namespace cubinery::source_options_test {
namespace {

using Texts = std::vector<std::string>;

const Texts kFixed = {"-std=c++20", "-default-device", "-Xptxas=-v", "--no-cache"};

// What is behind the fixed options, or the message.
Texts added(const Texts& given) {
  Result<Texts> options = source_options(kFixed, given);
  if (!options) return {std::string(options.error().message())};
  REQUIRE(options->size() >= kFixed.size());
  CHECK(Texts(options->begin() + 1, options->begin() + 4) ==
        Texts(kFixed.begin() + 1, kFixed.end()));
  options->erase(options->begin(), options->begin() + 4);
  return *options;
}

std::string refused(const Texts& given) {
  const Result<Texts> options = source_options(kFixed, given);
  if (options) return "accepted";
  CHECK(options.error().code() == Code::kInvalidArgument);
  return std::string(options.error().message());
}

TEST_CASE("SpellingsOfAnOptionAreOne", "[cpu]") {
  for (const Texts& given :
       {Texts{"-DX=1"}, Texts{"-D X=1"}, Texts{"-D", "X=1"}, Texts{"--define-macro=X=1"},
        Texts{"--define-macro", "X=1"}, Texts{"--define-macro X=1"}}) {
    CHECK(added(given) == Texts{"-DX=1"});
  }
  CHECK(added({"--undefine-macro=X"}) == Texts{"-UX"});
  CHECK(added({"-use_fast_math"}) == Texts{"--use_fast_math"});
  CHECK(added({"-maxrregcount=64"}) == Texts{"--maxrregcount=64"});
  CHECK(added({"-maxrregcount", "64"}) == Texts{"--maxrregcount=64"});
  CHECK(added({"--generate-line-info"}) == Texts{"-lineinfo"});
  CHECK(added({"--ptxas-options", "-O2,--warn-on-spills"}) ==
        Texts{"-Xptxas=-O2", "-Xptxas=-warn-spills"});
  CHECK(added({"-Xptxas=--opt-level=2"}) == Texts{"-Xptxas=-O2"});
  CHECK(added({"-Xptxas", "-dlcm=cg"}) == Texts{"-Xptxas=-dlcm=cg"});
  CHECK(added({"-fmad", "false"}) == Texts{"--fmad=false"});
  CHECK(added({"-DA", "-UA", "-DA=2"}) == Texts{"-DA", "-UA", "-DA=2"});
  CHECK(added({"-DF(x)=x + 1"}) == Texts{"-DF(x)=x + 1"});
  CHECK(added({"-D_X"}) == Texts{"-D_X"});
  CHECK(added({}) == Texts{});
}

TEST_CASE("AFixedOptionIsReplacedNotDoubled", "[cpu]") {
  for (const Texts& given : {Texts{"-std=c++17"}, Texts{"--std=c++17"}, Texts{"--std", "c++17"}}) {
    const Texts options = source_options(kFixed, given).value();
    CHECK(options == Texts{"-std=c++17", "-default-device", "-Xptxas=-v", "--no-cache"});
  }
  CHECK(added({"--device-as-default-execution-space", "-Xptxas=-v", "-std=c++20"}).empty());
}

TEST_CASE("OptionsThatAnIdentityDoesNotCoverAreRefused", "[cpu]") {
  const auto check = [](const Texts& given, const std::string& instead) {
    const std::string text = refused(given);
    INFO(text);
    CHECK(text.starts_with("options has \"" + given[0].substr(0, 60)));
    CHECK(text.find("accepted: " + instead) != text.npos);
  };
  for (const Texts& given :
       {Texts{"-I/usr/include"}, Texts{"-I", "/usr/include"}, Texts{"-I=/usr"}, Texts{"-I /usr"},
        Texts{"--include-path=/usr"}, Texts{"--include-path", "/usr"}}) {
    check(given, "folders stand in `includes`");
  }
  for (const Texts& given : {Texts{"-include", "a.h"}, Texts{"-include=a.h"}, Texts{"-include a.h"},
                             Texts{"--pre-include=a.h"}, Texts{"--preinclude=a.h"}}) {
    check(given, "an #include line of the source");
  }
  for (const Texts& given : {Texts{"--options-file=o.txt"}, Texts{"-optf", "o.txt"},
                             Texts{"@o.txt"}, Texts{"@/etc/passwd"}}) {
    check(given, "the options themselves");
  }
  for (const Texts& given : {Texts{"-arch=sm_80"}, Texts{"--gpu-architecture=compute_90"},
                             Texts{"-arch", "sm_80"}, Texts{"-gencode=arch=compute_90"}}) {
    check(given, "Options::arch");
  }
  for (const char* option : {"-dc", "-dw", "-rdc=true", "--relocatable-device-code=true",
                             "--device-c", "-ewp", "--extensible-whole-program"}) {
    check({option}, "all that a kernel calls");
  }
  for (const char* option : {"-dlto", "--dlink-time-opt", "-ltoir", "--gen-opt-lto", "--optix-ir",
                             "-ptx", "-fdevice-syntax-only"}) {
    check({option}, "nothing: what is made is a cubin");
  }
  for (const char* option :
       {"-pch", "--pch", "--create-pch=a.pch", "--use-pch=a.pch", "--pch-dir=/tmp", "-pch-dir=/tmp",
        "-pch-verbose=true", "--instantiate-templates-in-pch=true"}) {
    check({option}, "nothing: a precompiled header");
  }
  for (const char* option : {"-time=t.csv", "--time=-", "--fdevice-time-trace=t.json",
                             "-fdevice-time-trace", "--device-time-trace=t"}) {
    check({option}, "KernelInfo::compile_ms");
  }
  check({"--modify-stack-limit=true"}, "nothing: it is a limit of the whole process");
  check({"-o", "k.cubin"}, "CompiledKernel::path");
  check({"--keep-dir=/tmp"}, "CompiledKernel::path");
  check({"--no-source-include=false"}, "-D, -U, ");
  check({"--use-fast-math"}, "-D, -U, ");
  CHECK(refused({"--use-fast-math"}).find("did you mean --use_fast_math?") != std::string::npos);
  check({"k.cu"}, "-D, -U, ");
}

TEST_CASE("OptionsOfTheAssemblerThatNameFilesAreRefused", "[cpu]") {
  for (const char* list : {"-o,k",
                           "-o=k",
                           "--output-file=k",
                           "-optf=o",
                           "--options-file=o",
                           "-arch=sm_80",
                           "-c",
                           "--compile-only",
                           "-e=other",
                           "--entry=other",
                           "-ias=x",
                           "-v,-o=k",
                           "-v,",
                           ",-v",
                           "",
                           "-v -o k",
                           "-dlcm",
                           "-dlcm=",
                           "-dlcm=/etc",
                           "-O",
                           "-Ox",
                           "-v=1",
                           "@o",
                           "-maxntid=32",
                           "-astoolspatch",
                           "-preserve-relocs"}) {
    const std::string text = refused({"-Xptxas", list});
    INFO(list);
    CHECK(text.find("accepted: -Xptxas of -v, -O, ") != text.npos);
  }
}

TEST_CASE("ValuesThatOptionsDoNotTakeAreRefused", "[cpu]") {
  CHECK(refused({"-maxrregcount=all"}) ==
        "options has \"-maxrregcount=all\"; accepted: --maxrregcount of a number");
  CHECK(refused({"-fmad", "maybe"}) ==
        "options has \"-fmad maybe\"; accepted: --fmad of true, false");
  CHECK(refused({"-D"}) == "options has \"-D\"; accepted: -D and its value");
  CHECK(refused({"-D=X"}) ==
        "options has \"-D=X\"; accepted: -D of NAME or NAME=text, without __has_include");
  CHECK(refused({"-DH=__has_include(</etc/passwd>)"}).ends_with("text, without __has_include"));
  for (const char* option :
       {"-std=c++14", "--std=c++03", "-std=gnu++20", "-std=", "-std=c++20 -I/"}) {
    CHECK(refused({option}).find("accepted: -std of c++17, c++20, c++23; ") != std::string::npos);
  }
  CHECK(refused({"-UX Y"}) == "options has \"-UX Y\"; accepted: -U of NAME");
  CHECK(refused({"-G=1"}) == "options has \"-G=1\"; accepted: the option without a value");
  for (const Texts& given :
       {Texts{""}, Texts{"-DX=1\n-I/etc"}, Texts{"-D", "X=\t1"}, Texts{std::string("-DX\0", 4)}}) {
    CHECK(refused(given).find("; accepted: an option of printed characters") != std::string::npos);
  }
}

TEST_CASE("TheTextOfOptionsHasOneReading", "[cpu]") {
  CHECK(options_text({"-std=c++20", "-DX=1"}) == "-std=c++20 -DX=1");
  CHECK(options_text({"-DX=1 -DY"}) == "-DX=1\\ -DY");
  CHECK(options_text({"-DX=1", "-DY"}) == "-DX=1 -DY");
  CHECK(options_text({"-DX=\\", "-DY"}) == "-DX=\\\\ -DY");
  CHECK(options_text({"-DX=\\ -DY"}) == "-DX=\\\\\\ -DY");
}

TEST_CASE("APlainNameIsTheLastIdentifier", "[cpu]") {
  for (const auto& [name, plain] : std::vector<std::pair<std::string, std::string>>{
           {"scale", "scale"},
           {"_k9", "_k9"},
           {"ns::scale", "scale"},
           {"::ns::inner::scale", "scale"},
           {"scale<float, 4>", "scale"},
           {"ns::scale<float, ns::Vec<4>, (2 > 1)>", "scale"},
           {"ns::A<int>::scale<int[4], sizeof(float)>", "scale"},
           {"scale<&ns::f, -1>", "scale"},
           {"scale <int>", "scale"}}) {
    INFO(name);
    CHECK(plain_name(name).value() == plain);
  }
  CHECK(plain_name(std::string(100, 'a')).value() == std::string(64, 'a'));
  CHECK(plain_name("").value() == "kernel");
}

TEST_CASE("WhatIsNoNameIsRefused", "[cpu]") {
  for (const std::string name :
       {" ",           "9k",           "a b",          "a::",          "::",           "a:b",
        "&scale",      "scale()",      "scale<",       "scale<int",    "scale<int>>",  "scale>",
        "scale<(int>", "scale<int)>",  "scale; int x", "scale<int>;",  "scale<\"a\">", "scale<'a'>",
        "a/b",         "../scale",     "scale\n",      "scale<int\n>", "scale<{1}>",   "#include",
        "scale<a\\b>", "sk\xc3\xa4la", "scale<int>x",  "a-b"}) {
    const Result<std::string> plain = plain_name(name);
    INFO(name);
    REQUIRE_FALSE(plain);
    CHECK(plain.error().code() == Code::kInvalidArgument);
    CHECK(plain.error().message().find("accepted: that of a __global__ function") !=
          std::string_view::npos);
  }
  CHECK_FALSE(plain_name(std::string("scale\0x", 7)));
}

TEST_CASE("AKeyOfATextIsNoFieldTables", "[cpu]") {
  const std::string key = source_key({.name = "ns::scale<float, 4>", .allow_spills = false});
  CHECK(key == "source;name=ns::scale<float, 4>;allow_spills=false");  // persistent
  CHECK(is_source_key(key));
  CHECK(name_in_source_key(key) == "ns::scale<float, 4>");
  CHECK_FALSE(is_source_key("source;threads=4"));
  CHECK_FALSE(is_source_key("gdn_decode;key_dim=128"));
  CHECK(name_in_source_key("gdn_decode;name=1").empty());
  CHECK(compiler_in_key(key) == Compiler::kNvrtc);
  const std::string of_nvcc = source_key({.name = "scale", .compiler = Compiler::kNvcc});
  CHECK(of_nvcc == "source;name=scale;allow_spills=true;compiler=nvcc");  // persistent
  CHECK(compiler_in_key(of_nvcc) == Compiler::kNvcc);
  CHECK(name_in_source_key(of_nvcc) == "scale");
  CHECK(compiler_in_key("gdn_decode;compiler=nvcc") == Compiler::kNvrtc);
  CHECK(source_key({}) == "source;name=;allow_spills=true");
}

TEST_CASE("ACompilerIsGivenWhatItKnows", "[cpu]") {
  const auto of_nvcc = [](const Texts& given) {
    return source_options({"-std=c++20", "-Xptxas=-v"}, given, Compiler::kNvcc);
  };
  CHECK(of_nvcc({"--std=c++17", "-O3", "--expt-relaxed-constexpr", "--compiler-options",
                 "-fPIC,-O3,-Wno-abi", "--ptxas-options=-v", "-D", "X=1"})
            .value() == Texts{"-std=c++17", "-Xptxas=-v", "-O3", "--expt-relaxed-constexpr",
                              "-Xcompiler=-fPIC", "-Xcompiler=-O3", "-Xcompiler=-Wno-abi",
                              "-DX=1"});
  for (const char* list :
       {"-include,x.h", "-I/tmp", "-Wp", "-Wp,-MD,file", "-Wl,-o", "-march=native", "-fplugin=x.so",
        "@file", "-specs=x", "-B/tmp", "-o", "", "-O3,", "-D_X", "-Wa,--x", "-fPIC=1"}) {
    const auto options = of_nvcc({"-Xcompiler", list});
    INFO(list);
    REQUIRE_FALSE(options);
    CHECK(options.error().message().find("accepted: -Xcompiler of -O, -W, ") != std::string::npos);
  }
  for (const char* file : {"-ccbin=/tmp", "--compiler-bindir=/tmp", "-optf=x", "-I/tmp", "-keep",
                           "-include=x.h", "--run", "-Xlinker=x", "-x=c++", "--dryrun",
                           "-cudart=none", "-idp=/tmp", "-isystem=/tmp", "-target-dir=x"}) {
    INFO(file);
    CHECK_FALSE(of_nvcc({file}));
  }
  CHECK(of_nvcc({"-default-device"})
            .error()
            .message()
            .starts_with("options has \"-default-device\"; accepted: it with compiler nvrtc, not "
                         "with nvcc; with that: -D, "));
  CHECK(refused({"--expt-relaxed-constexpr"})
            .starts_with("options has \"--expt-relaxed-constexpr\"; accepted: it with compiler "
                         "nvcc, not with nvrtc; with that: -D, "));
}

}  // namespace
}  // namespace cubinery::source_options_test
