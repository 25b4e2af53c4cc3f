// Of the compatibility with DeepJIT what compiles no kernel: environment, configuration, options.
#include <atomic>
#include <limits>
#include <stdexcept>
#include <thread>

#include "tests/compat/bench.h"

namespace cubinery::deep_jit_settings_test {
namespace {

using deep_jit::Env;
using deep_jit::cuda::CompilerOptions;
using deep_jit::cuda::LaunchOptions;
using test::has;
using test::JitBench;
using test::thrown;
using test::Variable;

TEST_CASE("ALibrarysVariablesGoBeforeThoseOfAll", "[deep_jit]") {
  const Env env("OWN");
  const Variable all("DJ_VALUE", "all");
  const Variable plain("VALUE", "plain");
  CHECK(env.get<std::string>("VALUE") == "all");
  const Variable own("OWN_VALUE", "own");
  CHECK(env.get<std::string>("VALUE") == "own");
  CHECK(env.get<std::string>("OTHER", "none") == "none");
  CHECK_FALSE(env.get<int>("OTHER").has_value());
  CHECK(Env::get_with_prefix<std::string>("DJ", "VALUE") == "all");
}

TEST_CASE("VariablesAreReadAsWhole", "[deep_jit]") {
  enum class Level : int { kTwo = 2 };
  for (const char* yes : {"1", "-2", "TRUE", "yEs"}) {
    const Variable value("OWN_VALUE", yes);
    CHECK(deep_jit::get_env<bool>("OWN_VALUE"));
  }
  for (const char* no : {"0", "False", "no"}) {
    const Variable value("OWN_VALUE", no);
    CHECK_FALSE(deep_jit::get_env<bool>("OWN_VALUE", true));
  }
  const Variable number("OWN_NUMBER", "2");
  CHECK(deep_jit::get_env<int>("OWN_NUMBER") == 2);
  CHECK(deep_jit::get_env<Level>("OWN_NUMBER") == Level::kTwo);
  CHECK(deep_jit::get_env<int>("OWN_NONE", 7) == 7);
  for (const char* bad : {"", "12x", " 1", "1 ", "sometimes", "99999999999999999999"}) {
    const Variable value("OWN_VALUE", bad);
    CHECK(has(thrown([] { deep_jit::get_env<int>("OWN_VALUE"); }), "invalid value for OWN_VALUE"));
    CHECK(has(thrown([] { deep_jit::get_env<bool>("OWN_VALUE"); }), "invalid value for OWN_VALUE"));
  }
  const Variable negative("OWN_VALUE", "-1");
  CHECK_FALSE(thrown([] { deep_jit::get_env<unsigned>("OWN_VALUE"); }).empty());
}

TEST_CASE("APrefixIsOfOneLibrary", "[deep_jit]") {
  CHECK(has(thrown([] { Env(""); }), "prefix must not be empty"));
  CHECK(has(thrown([] { Env("DJ"); }), "reserved for global environment variables"));
}

TEST_CASE("AConfigHasAbsoluteFolders", "[deep_jit]") {
  const deep_jit::Config config("/opt/lib/scripts/..", "OWN", "version 1", {"/opt/lib/./include"},
                                {"lib/"});
  CHECK(config.include_dirs.front() == "/opt/lib/include");
  CHECK(config.get_python_path("a/../b.py") == "/opt/lib/b.py");
  using deep_jit::Config;
  CHECK(has(thrown([] { Config({}, "OWN"); }), "root must not be empty"));
  CHECK(has(thrown([] { Config("lib", "OWN"); }), "root must be absolute: lib"));
  CHECK(has(thrown([] { Config("/lib", ""); }), "prefix must not be empty"));
  CHECK(has(thrown([] { Config("/lib", "DJ"); }), "reserved"));
  CHECK(has(thrown([] { Config("/lib", "OWN", {}, {""}); }), "must not be empty"));
  CHECK(has(thrown([] { Config("/lib", "OWN", {}, {"in"}); }), "must be absolute: in"));
}

TEST_CASE("WhatIsLazyIsMadeOnce", "[deep_jit]") {
  using Lazy = deep_jit::LazyInit<int>;
  Lazy none(nullptr);
  CHECK(has(thrown([&] { none.get(); }), "lazy object must be initialized before use"));
  Lazy null([]() -> std::shared_ptr<int> { return nullptr; });
  CHECK(has(thrown([&] { null.get(); }), "lazy factory must not return nullptr"));

  std::atomic<int> made = 0;
  Lazy lazy([&] {
    ++made;
    std::this_thread::yield();
    return std::make_shared<int>(41);
  });
  CHECK(made == 0);
  Lazy copy = lazy;
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { lazy.get(); });
  for (std::thread& thread : threads) thread.join();
  CHECK(made == 1);
  CHECK(copy.get() == lazy.get());
  CHECK(*lazy.operator->() == 41);

  int attempts = 0;
  Lazy retried([&] {
    if (++attempts == 1) throw std::runtime_error("no");
    return std::make_shared<int>(attempts);
  });
  CHECK_THROWS_AS(retried.get(), std::runtime_error);
  CHECK(*retried.get() == 2);
  none = retried;
  CHECK(none.get() == retried.get());
}

TEST_CASE("ARuntimeIsMadeWhenItIsFirstUsed", "[deep_jit]") {
  JitBench bench;
  auto jit = deep_jit::create_lazy_jit<deep_jit::CUDA>(bench.config());
  CHECK(bench.fake->contexts == 0);
  CHECK(jit->device.get_num_sms() == 132);
  CHECK(bench.fake->contexts == 1);
  CHECK(jit.get() == jit.get());
}

TEST_CASE("ARuntimeNeedsADevice", "[deep_jit]") {
  JitBench bench;
  bench.fake->devices = 0;
  bench.fake->init = CUDA_ERROR_NO_DEVICE;
  const std::string why = thrown([&] { bench.runtime(); });
  CHECK(has(why, "failed with CUDA error 100 (CUDA_ERROR_NO_DEVICE): no CUDA-capable device"));
}

TEST_CASE("ARuntimeIsOfTheCurrentDevice", "[deep_jit]") {
  JitBench bench;
  CHECK(bench.runtime()->device.get_index() == 0);
  bench.fake->devices = 4;
  bench.fake->current_device = 3;
  const auto runtime = bench.runtime();
  CHECK(runtime->device.get_index() == 3);
  CHECK(runtime->context("90a").device() == 3);
}

TEST_CASE("ADeviceTellsWhatItIs", "[deep_jit]") {
  JitBench bench;
  deep_jit::cuda::Device device;
  CHECK(device.get_num_sms() == 132);
  CHECK(device.get_num_l2_cache_bytes() == 50 << 20);
  CHECK(device.get_num_smem_bytes() == 227 << 10);
  CHECK(device.get_clock_rate() == 1980000000);
  CHECK(device.get_arch_pair() == std::pair(9, 0));
  CHECK(device.get_arch() == "90a");
  CHECK(device.get_arch(true, true) == "90");
  bench.fake->major = 10;
  bench.fake->minor = 3;
  CHECK(device.get_arch() == "103f");
  CHECK(device.get_arch(false) == "103a");
  bench.fake->major = 8;
  bench.fake->minor = 9;
  CHECK(device.get_arch() == "89");
}

TEST_CASE("TheDefaultsAreDeepJits", "[deep_jit]") {
  JitBench bench;
  const auto runtime = bench.runtime();
  CHECK(runtime->default_compiler_options.get_flags() ==
        std::vector<std::string>{"--gpu-architecture=sm_90a", "-O3", "--compiler-options=-O3",
                                 "--ptxas-options=--register-usage-level=10", "-std=c++20",
                                 "--compiler-options=-fPIC", "--compiler-options=-fconcepts",
                                 "--expt-relaxed-constexpr", "--expt-extended-lambda"});
  const LaunchOptions& launch = runtime->default_launch_options;
  CHECK_FALSE(launch.stream.has_value());
  CHECK_FALSE(launch.grid_dim.has_value());
  CHECK(launch.num_smem_bytes == 0);
  CHECK(launch.cluster_dim->x == 1);
  CHECK(launch.enable_pdl == false);
}

TEST_CASE("VariablesSetTheDefaults", "[deep_jit]") {
  JitBench bench;
  const auto defaults = [&] { return bench.runtime()->default_compiler_options; };
  struct Row {
    const char* suffix;
    std::optional<bool> CompilerOptions::*member;
  };
  for (const Row& row : {Row{"JIT_PTXAS_VERBOSE", &CompilerOptions::ptxas_verbose},
                         Row{"JIT_CHECK_NO_SPILLS", &CompilerOptions::check_no_spills},
                         Row{"JIT_CHECK_NO_LOCAL_MEMORY", &CompilerOptions::check_no_local_memory},
                         Row{"JIT_WITH_LINEINFO", &CompilerOptions::with_line_info},
                         Row{"JIT_DUMP_PTX", &CompilerOptions::dump_ptx},
                         Row{"JIT_DUMP_SASS", &CompilerOptions::dump_sass}}) {
    INFO(row.suffix);
    CHECK(defaults().*row.member == false);
    const Variable all(std::string("DJ_") + row.suffix, "1");
    CHECK(defaults().*row.member == true);
    const Variable own(std::string("TEST_") + row.suffix, "0");
    CHECK(defaults().*row.member == false);
  }
  const Variable standard("TEST_JIT_CPP_STANDARD", "17");
  CHECK(defaults().nvcc_flags->front() == "-std=c++17");
  const Variable debug("DJ_JIT_DEBUG", "1");
  CHECK(defaults().with_line_info == true);
}

TEST_CASE("WhatIsSetGoesBeforeTheDefaults", "[deep_jit]") {
  JitBench bench;
  CompilerOptions defaults = bench.runtime()->default_compiler_options;
  defaults.extra_nvcc_flags = {"-DALL"};
  const CompilerOptions options = defaults.override_with({.optimize_level = "1",
                                                          .fast_math = true,
                                                          .ptxas_register_usage_level = 0,
                                                          .check_no_spills = true,
                                                          .check_no_local_memory = true,
                                                          .with_line_info = true,
                                                          .arch = "100f",
                                                          .nvcc_flags = std::vector<std::string>{},
                                                          .extra_nvcc_flags = {"-DOWN"},
                                                          .post_hook = ""});
  CHECK(options.get_flags() ==
        std::vector<std::string>{"--gpu-architecture=sm_100f", "-O1", "--compiler-options=-O1",
                                 "--use_fast_math", "--ptxas-options=--register-usage-level=0",
                                 "--ptxas-options=--warn-on-spills",
                                 "--ptxas-options=--warn-on-local-memory-usage",
                                 "--generate-line-info", "-DALL", "-DOWN"});
  CHECK(options.post_hook == "");
  CHECK(options.override_with({.fast_math = false}).fast_math == false);
  CompilerOptions none = defaults;
  none.arch.reset();
  CHECK(has(thrown([&] { none.get_flags(); }), "architecture must be specified"));
  none = defaults;
  none.optimize_level = "";
  CHECK(has(thrown([&] { none.get_flags(); }), "optimization level must be specified"));
  none = defaults;
  none.ptxas_register_usage_level.reset();
  CHECK(has(thrown([&] { none.get_flags(); }), "register usage level must be specified"));

  LaunchOptions launch = LaunchOptions::default_options(Env("TEST"));
  launch.stream = reinterpret_cast<CUstream>(16);
  launch.enable_pdl = launch.cooperative = true;
  const LaunchOptions own =
      launch.override_with({.stream = nullptr, .grid_dim = dim3(2, 3, 4), .cooperative = false});
  CHECK(own.stream == nullptr);
  CHECK(own.grid_dim->z == 4);
  CHECK(own.cooperative == false);
  CHECK(own.enable_pdl == true);
}

TEST_CASE("OptionsAreCubinerysToo", "[deep_jit]") {
  JitBench bench;
  const Env env("TEST");
  const Variable packs("CUBINERY_CACHE_LAYERS", "/packs/a.pack");
  {
    const Variable list("TEST_JIT_CACHE_DIR", "/first:/second:/third");
    const Options options = deep_jit::CUDA::options(env, 2);
    CHECK(options.device == 2);
    CHECK(options.driver_path == CUBINERY_FAKE_DRIVER);
    CHECK(options.cache_dir == "/first");
    CHECK(options.cache_layers == std::vector<std::string>{"/second", "/third", "/packs/a.pack"});
  }
  for (const char* list : {"", ":/first", "/first:", "/first::/second"}) {
    const Variable bad("TEST_JIT_CACHE_DIR", list);
    CHECK(has(thrown([&] { deep_jit::CUDA::options(env, 0); }), "contains an empty path"));
  }
  const Variable own("CUBINERY_CACHE_DIR", "/own");
  ::unsetenv("TEST_JIT_CACHE_DIR");
  CHECK(deep_jit::CUDA::options(env, 0).cache_dir == "/own");
  const Variable wrong("CUBINERY_OFFLINE", "perhaps");
  CHECK(has(thrown([&] { deep_jit::CUDA::options(env, 0); }), "CUBINERY_OFFLINE"));
}

TEST_CASE("TheCompilerIsAChoice", "[deep_jit]") {
  JitBench bench;
  deep_jit::Config config = bench.config();
  const Env env("TEST");
  CHECK(deep_jit::CUDA::compiler(config, env) == Compiler::kNvrtc);
  config.compiler = Compiler::kNvcc;
  CHECK(deep_jit::CUDA::compiler(config, env) == Compiler::kNvcc);
  {
    const Variable chosen("DJ_JIT_COMPILER", "nvrtc");
    CHECK(deep_jit::CUDA::compiler(config, env) == Compiler::kNvrtc);
  }
  config.compiler = Compiler::kNvrtc;
  const Variable path("TEST_JIT_NVCC_COMPILER", "/opt/cuda/bin/../bin/nvcc");
  CHECK(deep_jit::CUDA::compiler(config, env) == Compiler::kNvcc);
  CHECK(deep_jit::CUDA::options(env, 0).nvcc_path == "/opt/cuda/bin/nvcc");
  const Variable wrong("TEST_JIT_COMPILER", "clang");
  CHECK(has(thrown([&] { deep_jit::CUDA::compiler(config, env); }),
            "TEST_JIT_COMPILER is clang; accepted: nvrtc, nvcc"));
}

}  // namespace
}  // namespace cubinery::deep_jit_settings_test
