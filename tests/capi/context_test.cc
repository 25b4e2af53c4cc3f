// Contexts and problems through the C ABI, without a GPU or a compiler.
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "capi/arguments.h"
#include "capi/handles.h"
#include "cubinery/gdn.h"
#include "tests/cache/child.h"
#include "tests/cache/temp_dir.h"
#include "tests/capi/cancel.h"
#include "tests/capi/handles.h"
#include "tests/model_configs.h"

namespace cubinery {
namespace {

using test::ContextHandle;
using test::new_options;
using test::OptionsHandle;
using test::refused;
using test::taken;

constexpr const char* kNoText = "not NULL";

// An offline context, for which nothing is compiled.
struct Bench {
  Bench() {
    test::set(options, "offline", "1");
    context = test::new_context(options, dir.path());
  }
  test::TempDir dir;
  OptionsHandle options = new_options();
  ContextHandle context{nullptr, cubinery_context_destroy};
};

TEST_CASE("AContextSaysWhatItIsFor", "[cpu]") {
  const Bench bench;
  CHECK(std::string(cubinery_context_arch(bench.context.get())) == "sm_90a");
  CHECK(cubinery_context_device(bench.context.get()) == -1);
  CHECK(cubinery_context_sm_count(bench.context.get()) == 0);
  CHECK(std::string(cubinery_context_arch(nullptr)).empty());
  CHECK(cubinery_context_device(nullptr) == -1);
  CHECK(cubinery_context_sm_count(nullptr) == 0);
}

TEST_CASE("InAForkedChildAContextIsUnsupported", "[cpu]") {
  Bench bench;
  const pid_t child = test::start_child([&] {
    CubineryContext* const context = bench.context.release();
    CubineryDecode* decode = nullptr;
    char* text = nullptr;
    if (cubinery_context_compile(context, "gdn_decode", "{}", &text) != CUBINERY_UNSUPPORTED) {
      return 1;
    }
    if (std::string(cubinery_last_error()).find("fork()") == std::string::npos) return 2;
    if (cubinery_context_explain(context, "gdn_decode", "{}", &text) != CUBINERY_UNSUPPORTED) {
      return 3;
    }
    if (cubinery_decode_create(context, "{}", &decode) != CUBINERY_UNSUPPORTED) return 4;
    CubineryCacheStats stats = CUBINERY_CACHE_STATS_INIT;
    if (cubinery_context_stats(context, &stats) != CUBINERY_OK) return 5;
    cubinery_context_destroy(context);
    return 0;
  });
  CHECK(test::wait_for(child) == 0);
}

TEST_CASE("AContextThatCannotBeIsNull", "[cpu]") {
  const OptionsHandle options = new_options();
  test::set(options, "device", "-1");
  test::set(options, "arch", "sm_1");
  CubineryContext* context = nullptr;
  std::memset(&context, 1, sizeof context);
  CHECK(refused(cubinery_context_create(options.get(), &context))
            .starts_with("Options::arch = \"sm_1\"; accepted: sm_80, "));
  CHECK(context == nullptr);
  CHECK(refused(cubinery_context_create(options.get(), nullptr)).starts_with("context is NULL"));
}

TEST_CASE("AModelsProblemsComeTogetherWithItsSwitches", "[cpu]") {
  const char* const config = R"({"model_type": "qwen3_next", "linear_conv_kernel_dim": 5})";
  const auto problems_of = [&](const char* options) {
    char* text = nullptr;
    REQUIRE(cubinery_model_problems(config, 1, options, &text) == CUBINERY_OK);
    return nlohmann::json::parse(taken(text));
  };
  const nlohmann::json usual = problems_of(nullptr);
  CHECK(usual == problems_of("{}"));
  CHECK(usual.size() == 9);
  const gdn::ModelProblems problems = gdn::problems_for_model(config).value();
  CHECK(usual["decode"] == nlohmann::json::parse(problems.decode.to_json()));
  CHECK(usual["conv_verify"] == nlohmann::json::parse(problems.conv_verify.to_json()));
  REQUIRE(usual["left_out"].size() == 4);
  CHECK(usual["left_out"][1]["form"] == "conv");
  CHECK(usual["left_out"][1]["why"] == "gdn_conv: width = 5; accepted: 2, 3, 4");

  const nlohmann::json other = problems_of(
      R"({"model_type": "olmo_hybrid", "state_dtype": "bf16", "draft_tokens": 8, "conv_width": 3})");
  CHECK(other["left_out"].empty());
  CHECK(other["commit"]["state_dtype"] == "bf16");
  CHECK(other["commit"]["draft_tokens"] == 8);
  CHECK(other["commit"]["beta_mode"] == "doubled_logit");
  CHECK(other["conv"]["width"] == 3);

  const auto refusal = [&](const char* options) {
    char* text = const_cast<char*>(kNoText);
    const std::string message = refused(cubinery_model_problems(config, 1, options, &text));
    CHECK(text == nullptr);
    return message;
  };
  CHECK(refusal("[]") == "options: accepted: a JSON object");
  CHECK(refusal("{") == "options: not JSON at column 2");
  CHECK(refusal(R"({"dtype": null})") ==
        "options: dtype = null; accepted: a string, a number, true, false");
  CHECK(refusal(R"({"model_type": "none"})").starts_with("model_type = \"none\"; accepted: "));
  CHECK(refusal(R"({"dtpye": "f16"})").ends_with("did you mean dtype?"));
  char* text = nullptr;
  CHECK(refused(cubinery_model_problems(nullptr, 1, nullptr, &text)).starts_with("config is NULL"));
  CHECK(refused(cubinery_model_problems(config, 1, nullptr, nullptr))
            .starts_with("problems is NULL"));
}

TEST_CASE("AnErrorLeavesNoText", "[cpu]") {
  const Bench bench;
  const CubineryContext* const context = bench.context.get();
  const auto is_null_after = [](auto&& call) {
    char* text = const_cast<char*>(kNoText);
    CHECK(call(&text) != CUBINERY_OK);
    return text == nullptr;
  };
  CHECK(is_null_after([&](char** text) { return cubinery_check_problem("gdn", "{}", text); }));
  CHECK(is_null_after(
      [&](char** text) { return cubinery_context_compile(context, "gdn", "{}", text); }));
  CHECK(is_null_after(
      [&](char** text) { return cubinery_context_explain(context, "gdn", "{}", text); }));
  CHECK(is_null_after([&](char** text) { return cubinery_context_nvrtc_version(context, text); }));
  CHECK(cubinery_context_nvrtc_version(context, nullptr) == CUBINERY_INVALID_ARGUMENT);
}

TEST_CASE("AListThatIsNoListOfProblemsIsRefused", "[cpu]") {
  const Bench bench;
  for (const char* wrong :
       {"", "{}", "[3]", "[{}]", R"([{"op":"gdn_decode"}])", R"([{"op":3,"problem":{}}])",
        R"([{"op":"gdn","problem":{}}])", R"([{"op":"gdn_decode","problem":[]}])",
        R"([{"op":"gdn_decode","problem":{"key_dim":3}}])"}) {
    INFO(wrong);
    char* text = const_cast<char*>(kNoText);
    CHECK(refused(cubinery_context_compile_problems(bench.context.get(), wrong, &text))
              .starts_with("problems"));
    CHECK(text == nullptr);
  }
}

TEST_CASE("NullsAmongTheArgumentsOfContextsAreNamed", "[cpu]") {
  const Bench bench;
  const CubineryContext* const context = bench.context.get();
  char* text = nullptr;
  CubineryCacheStats stats = CUBINERY_CACHE_STATS_INIT;
  const auto names = [](const std::string& name, int code) {
    CHECK(refused(code) == name + " is NULL; accepted: a pointer");
  };
  names("context", cubinery_context_nvrtc_version(nullptr, &text));
  names("version", cubinery_context_nvrtc_version(context, nullptr));
  names("context", cubinery_context_stats(nullptr, &stats));
  names("stats", cubinery_context_stats(context, nullptr));
  names("op", cubinery_check_problem(nullptr, "{}", &text));
  names("problem", cubinery_check_problem("gdn_decode", nullptr, &text));
  names("full", cubinery_check_problem("gdn_decode", "{}", nullptr));
  names("context", cubinery_context_compile(nullptr, "gdn_decode", "{}", &text));
  names("op", cubinery_context_compile(context, nullptr, "{}", &text));
  names("problem", cubinery_context_compile(context, "gdn_decode", nullptr, nullptr));
  names("context", cubinery_context_compile_problems(nullptr, "[]", &text));
  names("problems", cubinery_context_compile_problems(context, nullptr, &text));
  names("context", cubinery_context_explain(nullptr, "gdn_decode", "{}", &text));
  names("report", cubinery_context_explain(context, "gdn_decode", "{}", nullptr));
}

TEST_CASE("AProblemIsReadAndWrittenInFull", "[cpu]") {
  char* text = nullptr;
  REQUIRE(cubinery_check_problem("gdn_decode", R"({"v_heads":64,"state_dtype":"bf16"})", &text) ==
          CUBINERY_OK);
  CHECK(taken(text) ==
        gdn::DecodeProblem{.heads = {.v = 64}, .states = {.dtype = DType::kBF16}}.to_json());
  REQUIRE(cubinery_check_problem("gdn_prefill", R"({"varlen":true})", &text) == CUBINERY_OK);
  const std::string full = taken(text);
  CHECK(full == gdn::PrefillProblem{.varlen = true}.to_json());
  REQUIRE(cubinery_check_problem("gdn_prefill", full.c_str(), &text) == CUBINERY_OK);
  CHECK(taken(text) == full);
  REQUIRE(cubinery_check_problem("gdn_verify", R"({"draft_tokens":8})", &text) == CUBINERY_OK);
  CHECK(taken(text) == gdn::VerifyProblem{.draft_tokens = 8}.to_json());
  REQUIRE(cubinery_check_problem("gdn_commit", R"({"draft_tokens":8})", &text) == CUBINERY_OK);
  CHECK(taken(text) == gdn::CommitProblem{.draft_tokens = 8}.to_json());
}

TEST_CASE("TheProblemOfAModelIsThatOfCpp", "[cpu]") {
  const std::string config = test::config_of("Qwen3.5-27B");
  const gdn::ModelProblems problems = gdn::problems_for_model(config, 2).value();
  char* text = nullptr;
  REQUIRE(cubinery_problem_for_model("gdn_decode", config.c_str(), 2, &text) == CUBINERY_OK);
  CHECK(taken(text) == problems.decode.to_json());
  REQUIRE(cubinery_problem_for_model("gdn_prefill", config.c_str(), 2, &text) == CUBINERY_OK);
  CHECK(taken(text) == problems.prefill.to_json());
  REQUIRE(cubinery_problem_for_model("gdn_verify", config.c_str(), 2, &text) == CUBINERY_OK);
  CHECK(taken(text) == problems.verify.to_json());
  REQUIRE(cubinery_problem_for_model("gdn_commit", config.c_str(), 2, &text) == CUBINERY_OK);
  CHECK(taken(text) == problems.commit.to_json());
  REQUIRE(cubinery_problem_for_model("gdn_conv", config.c_str(), 2, &text) == CUBINERY_OK);
  CHECK(taken(text) == problems.conv.to_json());
  CHECK(refused(cubinery_problem_for_model("gdn", config.c_str(), 2, &text))
            .starts_with("op = \"gdn\"; accepted: "));
  CHECK(text == nullptr);
  CHECK(refused(cubinery_problem_for_model("gdn_decode", nullptr, 1, &text))
            .starts_with("config is NULL"));
  CHECK(refused(cubinery_problem_for_model("gdn_decode", config.c_str(), 3, &text)) ==
        gdn::problems_for_model(config, 3).error().message());
}

TEST_CASE("AFormOfAModelIsThatOfCpp", "[cpu]") {
  const std::string config = test::config_of("Qwen3.5-27B");
  const gdn::ModelProblems problems = gdn::problems_for_model(config, 2).value();
  char* text = nullptr;
  const auto of_form = [&](const char* form) {
    REQUIRE(cubinery_form_for_model(form, config.c_str(), 2, &text) == CUBINERY_OK);
    return taken(text);
  };
  CHECK(of_form("decode") == problems.decode.to_json());
  CHECK(of_form("decode_with_conv") == problems.decode_with_conv.to_json());
  CHECK(of_form("prefill") == problems.prefill.to_json());
  CHECK(of_form("verify") == problems.verify.to_json());
  CHECK(of_form("commit") == problems.commit.to_json());
  CHECK(of_form("conv") == problems.conv.to_json());
  CHECK(of_form("conv_decode") == problems.conv_decode.to_json());
  CHECK(of_form("conv_verify") == problems.conv_verify.to_json());
  CHECK(refused(cubinery_form_for_model("conv_verif", config.c_str(), 2, &text)) ==
        "form = \"conv_verif\"; accepted: decode, decode_with_conv, prefill, verify, commit, conv, "
        "conv_decode, conv_verify; did you mean conv_verify?");
  CHECK(text == nullptr);
  CHECK(refused(cubinery_form_for_model(nullptr, config.c_str(), 2, &text))
            .starts_with("form is NULL"));
  CHECK(refused(cubinery_form_for_model("conv", nullptr, 1, &text)).starts_with("config is NULL"));
  CHECK(refused(cubinery_form_for_model("conv", config.c_str(), 3, &text)) ==
        gdn::problems_for_model(config, 3).error().message());
}

TEST_CASE("AProblemThatIsNoneIsRefused", "[cpu]") {
  char* text = nullptr;
  const auto message = [&](const char* op, const char* problem) {
    return refused(cubinery_check_problem(op, problem, &text));
  };
  CHECK(message("gdn", "{}") ==
        "op = \"gdn\"; accepted: gdn_decode, gdn_prefill, gdn_verify, gdn_commit, gdn_conv");
  CHECK(message("gdn_decode", "[]").starts_with("gdn_decode: not a JSON object"));
  CHECK(message("gdn_decod", "{}") ==
        "op = \"gdn_decod\"; accepted: gdn_decode, gdn_prefill, gdn_verify, gdn_commit, gdn_conv; "
        "did "
        "you "
        "mean gdn_decode?");
  CHECK(message("gdn_decode", R"({"varlen":true})")
            .starts_with("gdn_decode has no field \"varlen\"; accepted: q_heads, k_heads, "));
  CHECK(message("gdn_decode", R"({"dtype":"f64"})") ==
        "gdn_decode: field dtype = f64; accepted: f32, bf16, f16");
  CHECK(message("gdn_prefill", R"({"key_dim":100})") ==
        "gdn_prefill: key_dim = 100; accepted: multiples of 16 from 16 to 256");
  CHECK(message("gdn_verify", R"({"draft_tokens":17})") ==
        "gdn_verify: draft_tokens = 17; accepted: 1 to 16");
  CHECK(message("gdn_commit", R"({"store_state":false})") ==
        "gdn_commit: store_state = false; accepted: true");
}

TEST_CASE("AKernelThatIsNotCachedHasItsCode", "[cpu]") {
  const Bench bench;
  CHECK(cubinery_context_compile(bench.context.get(), "gdn_decode", "{}", nullptr) ==
        CUBINERY_NOT_CACHED);
  CHECK(std::string(cubinery_last_error()).find("the context is offline") != std::string::npos);
  CHECK(cubinery_context_nvrtc_version(bench.context.get(), nullptr) == CUBINERY_INVALID_ARGUMENT);
}

TEST_CASE("StatsAreFilledAsFarAsTheCallerKnowsThem", "[cpu]") {
  const Bench bench;
  const CubineryContext* const context = bench.context.get();
  cubinery_context_compile(context, "gdn_decode", "{}", nullptr);
  CubineryCacheStats stats = CUBINERY_CACHE_STATS_INIT;
  REQUIRE(cubinery_context_stats(context, &stats) == CUBINERY_OK);
  CHECK(stats.struct_size == sizeof stats);
  CHECK(stats.misses == 1);
  CHECK(stats.compiles + stats.memory_hits + stats.disk_hits == 0);

  // An older caller's struct ends before `compiles`.
  std::memset(&stats, 0xff, sizeof stats);
  stats.struct_size = offsetof(CubineryCacheStats, compiles);
  REQUIRE(cubinery_context_stats(context, &stats) == CUBINERY_OK);
  CHECK(stats.struct_size == offsetof(CubineryCacheStats, compiles));
  CHECK(stats.misses == 1);
  CHECK(stats.compiles == ~std::uint64_t{0});
  CHECK(stats.failed_writes == ~std::uint64_t{0});
}

// The file that these functions open is a place where a thread may be cancelled.
TEST_CASE("AThreadIsNotCancelledInsideTheLibrary", "[cpu]") {
  const Bench bench;
  const std::string layer = bench.dir.path() + "/layer.pack";
  test::write_bytes(layer, "no pack");
  test::set(bench.options, "cache_layers", layer);
  int outcome = CUBINERY_INTERNAL;
  CubineryContext* context = nullptr;
  test::run_cancelled([&] {
    test::cancel_this_thread();
    outcome = cubinery_context_create(bench.options.get(), &context);
  });
  CHECK(outcome == CUBINERY_OK);
  const auto compile = [&] {
    return cubinery_context_compile(context, "gdn_decode", "{}", nullptr);
  };
  test::run_cancelled([&] {
    test::cancel_this_thread();
    outcome = compile();
  });
  CHECK(outcome == CUBINERY_NOT_CACHED);
  CHECK(compile() == CUBINERY_NOT_CACHED);
  test::run_cancelled([&] {
    test::cancel_this_thread();
    cubinery_context_destroy(context);
  });
}

TEST_CASE("AStructOfAnImpossibleSizeIsRefused", "[cpu]") {
  const Bench bench;
  CubineryCacheStats stats = CUBINERY_CACHE_STATS_INIT;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{12}, std::size_t{64}}) {
    stats.struct_size = size;
    CHECK(refused(cubinery_context_stats(bench.context.get(), &stats)) ==
          "stats->struct_size is " + std::to_string(size) +
              "; accepted: multiples of 8 up to 56, its size in this library");
  }
}

TEST_CASE("FieldsThatAnOlderCallerLacksAreZero", "[cpu]") {
  CubineryDecodeArgs given = CUBINERY_DECODE_ARGS_INIT;
  const std::int64_t slot = 5;
  given.scratch_slot = &slot;
  const float scale = 1;
  given.scale = &scale;
  given.enable_pdl = 1;
  given.norm_eps = &scale;
  given.struct_size = offsetof(CubineryDecodeArgs, scale);
  CubineryDecodeArgs read;
  REQUIRE(capi::read_struct("args", &given, &read).ok());
  CHECK(read.scratch_slot == &slot);
  CHECK(read.scale == nullptr);
  CHECK(read.enable_pdl == 0);
  CHECK(read.norm_eps == nullptr);
}

}  // namespace
}  // namespace cubinery
