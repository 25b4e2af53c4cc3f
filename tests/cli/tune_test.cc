#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "cache/env.h"
#include "cli/shapes.h"
#include "cli/tune_plan.h"
#include "cli/tune_progress.h"
#include "cli/tune_report.h"
#include "results/record_file.h"
#include "results/shape.h"
#include "tests/cli/run_cli.h"

namespace cubinery {
namespace {

using Sizes = std::vector<std::int64_t>;

Request request_of(const Problem& problem, std::string arch = "") {
  return {.asked = {.form = {}, .problem = problem, .of = {}},
          .origin = "test",
          .arch = std::move(arch)};
}

gdn::DecodeProblem decode_with(int k_heads, int v_heads) {
  gdn::DecodeProblem problem;
  problem.heads.q = problem.heads.k = k_heads;
  problem.heads.v = v_heads;
  return problem;
}

std::vector<std::string> texts(const std::vector<Shape>& shapes) {
  std::vector<std::string> all;
  for (const Shape& shape : shapes) all.push_back(to_text(shape));
  return all;
}

// The summary of a dry run.
json dry_run(const Cli& cli, const std::string& arguments) {
  const Output output = cli.run("tune --dry-run --arch sm_90a --json - " + arguments);
  INFO(output.err);
  REQUIRE(output.exit_code == 0);
  return json::parse(output.out);
}

TEST_CASE("sizes are numbers and ranges", "[cpu]") {
  CHECK(parse_sizes("8") == Sizes{8});
  CHECK(parse_sizes("1:256") == Sizes{1, 2, 4, 8, 16, 32, 64, 128, 256});
  CHECK(parse_sizes("3:20") == Sizes{3, 6, 12});
  CHECK(parse_sizes("8,1,2:8") == Sizes{1, 2, 4, 8});
  CHECK(parse_sizes("1073741824") == Sizes{1 << 30});
  for (const char* bad : {"", ",", "1,", "0", "-1", "1.5", "a", "8:4", "1:", ":8", "1:2:4",
                          "1073741825", "1073741825:2", "99999999999999999999"}) {
    INFO(bad);
    CHECK(!parse_sizes(bad).has_value());
  }
}

TEST_CASE("durations have a unit", "[cpu]") {
  CHECK(parse_duration("90s") == std::chrono::seconds(90));
  CHECK(parse_duration("10m") == std::chrono::minutes(10));
  CHECK(parse_duration("2h") == std::chrono::hours(2));
  for (const char* bad : {"", "s", "10", "0m", "-1m", "1.5h", "10d", "10 m", "99999999h"}) {
    INFO(bad);
    CHECK(!parse_duration(bad).has_value());
  }
}

TEST_CASE("shapes that a problem cannot have are left out", "[cpu]") {
  const ShapeGrid grid{{"batch", {1, 8}}, {"tokens", {8, 64}}, {"sequences", {1, 3, 16}}};
  CHECK(texts(shapes_of(gdn::DecodeProblem{}, grid)) ==
        std::vector<std::string>{"batch=1", "batch=8"});
  gdn::PrefillProblem prefill;
  CHECK(texts(shapes_of(prefill, grid)) == std::vector<std::string>{"tokens=8;sequences=1",
                                                                    "tokens=64;sequences=1",
                                                                    "tokens=64;sequences=16"});
  prefill.varlen = true;
  CHECK(texts(shapes_of(prefill, grid)) ==
        std::vector<std::string>{"tokens=8;sequences=1", "tokens=64;sequences=1",
                                 "tokens=8;sequences=3", "tokens=8;sequences=3;max_seqlen=4",
                                 "tokens=64;sequences=3", "tokens=64;sequences=3;max_seqlen=32",
                                 "tokens=64;sequences=16", "tokens=64;sequences=16;max_seqlen=32"});
  // Not the longest; the longest; nothing left for the others.
  const ShapeGrid few{{"batch", {1, 8}}, {"tokens_each", {1, 4, 8, 16}}};
  CHECK(texts(shapes_of(gdn::VerifyProblem{.draft_tokens = 8}, few)) ==
        std::vector<std::string>{"batch=1;tokens_each=1", "batch=1;tokens_each=4",
                                 "batch=1;tokens_each=8", "batch=8;tokens_each=1",
                                 "batch=8;tokens_each=4", "batch=8;tokens_each=8"});
  CHECK(texts(shapes_of(gdn::CommitProblem{.draft_tokens = 8}, few)) ==
        std::vector<std::string>{"batch=1", "batch=8"});
  // Steps of requests, then a prefill's.
  const ShapeGrid mixed{{"batch", {2}},
                        {"tokens_each", {1, 4}},
                        {"tokens", {8}},
                        {"sequences", {1, 3, 16}},
                        {"channels", {64, 96}}};
  const gdn::ConvProblem conv{.split_qkv = true};
  CHECK(texts(shapes_of(conv, mixed)) ==
        std::vector<std::string>{"tokens=2;sequences=2", "tokens=8;sequences=1"});
  CHECK(texts(shapes_of(gdn::ConvProblem{.from_accepted = true}, mixed)) ==
        std::vector<std::string>{
            "tokens=2;sequences=2;channels=64", "tokens=2;sequences=2;channels=96",
            "tokens=8;sequences=2;channels=64", "tokens=8;sequences=2;channels=96"});
  const ShapeGrid longest{{"tokens", {64}}, {"sequences", {4}}, {"max_seqlen", {16, 17, 62}}};
  CHECK(texts(shapes_of(prefill, longest)) ==
        std::vector<std::string>{"tokens=64;sequences=4", "tokens=64;sequences=4;max_seqlen=17"});
}

TEST_CASE("shapes of one bucket are measured once", "[cpu]") {
  const ShapeGrid grid{{"batch", {3, 4, 5, 8}}};
  const auto plan = plan_tuning({request_of(decode_with(16, 32))}, grid, "sm_90a").value();
  REQUIRE(plan.size() == 1);
  CHECK(plan[0].op == "gdn_decode");
  CHECK(contains(plan[0].text, "key_dim=128;"));
  CHECK(!contains(plan[0].text, "warps"));
  CHECK(plan[0].configurations > 1);
  // 3, 4 and 5 requests of 32 heads are 96, 128 and 160 states.
  const std::vector<PlannedShape>& shapes = plan[0].buckets;
  REQUIRE(shapes.size() == 2);
  CHECK(shapes[0].bucket == "states=128");
  CHECK(to_text(shapes[0].shape) == "batch=4;q_heads=16;k_heads=16;v_heads=32");
  CHECK(shapes[0].shapes == 3);
  CHECK(shapes[1].bucket == "states=256");
  CHECK(shapes[1].shapes == 1);
  CHECK(plan[0].shapes() == 4);
}

TEST_CASE("a plan has the paths that options leave", "[cpu]") {
  const ShapeGrid grid{{"tokens", {512}}, {"sequences", {1}}};
  const std::vector<Request> requests{request_of(gdn::PrefillProblem{})};
  const auto configurations = [&](const std::vector<std::string>& paths) {
    return plan_tuning(requests, grid, "sm_90a", paths).value()[0].configurations;
  };
  const std::size_t portable = configurations({"gdn_prefill=portable"});
  CHECK(portable > 0);
  CHECK(portable + configurations({"gdn_prefill=-portable"}) == configurations({}));
}

TEST_CASE("problems that differ in heads share a space", "[cpu]") {
  const ShapeGrid grid{{"batch", {1, 2}}, {"tokens", {512}}, {"sequences", {1}}};
  const auto plan = plan_tuning({request_of(decode_with(16, 32)), request_of(decode_with(8, 16)),
                                 request_of(decode_with(2, 8)), request_of(gdn::PrefillProblem{})},
                                grid, "sm_90a")
                        .value();
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].problems == 3);
  CHECK(plan[1].op == "gdn_prefill");
  std::vector<std::string> measured;
  for (const PlannedShape& shape : plan[0].buckets) {
    measured.push_back(shape.bucket + " " + to_text(shape.shape));
  }
  CHECK(measured == std::vector<std::string>{"states=32 batch=1;q_heads=16;k_heads=16;v_heads=32",
                                             "states=64 batch=2;q_heads=16;k_heads=16;v_heads=32",
                                             "states=16 batch=1;q_heads=8;k_heads=8;v_heads=16",
                                             "states=8 batch=1;q_heads=2;k_heads=2;v_heads=8"});
  // 32 states are those of both first problems, 16 those of the second and the third.
  CHECK(plan[0].shapes() == 6);
}

TEST_CASE("forms that an architecture lacks are not tuned where another one stands in", "[cpu]") {
  const ShapeGrid grid{{"batch", {1}}};
  const Request first = request_of(gdn::DecodeProblem{});
  Request fp8 = request_of(gdn::DecodeProblem{.states = {.dtype = DType::kF8E4M3}});
  CHECK(plan_tuning({first, fp8}, grid, "sm_80").error().code() == Code::kUnsupported);
  fp8.may_be_left_out = true;
  CHECK(plan_tuning({first, fp8}, grid, "sm_80").value().size() == 1);
  CHECK(plan_tuning({first, fp8}, grid, "sm_89").value().size() == 2);
  CHECK(plan_tuning({fp8}, grid, "sm_80").error().code() == Code::kUnsupported);
}

TEST_CASE("problems for another architecture are left out", "[cpu]") {
  const ShapeGrid grid{{"batch", {1}}, {"tokens", {512}}, {"sequences", {1}}};
  const std::vector<Request> requests = {request_of(gdn::DecodeProblem{}, "sm_80")};
  CHECK(plan_tuning(requests, grid, "sm_80").value().size() == 1);
  CHECK(plan_tuning(requests, grid, "sm_90a").value().empty());
  CHECK(contains(std::string(plan_tuning(requests, grid, "sm_1").error().message()),
                 "--arch sm_1; accepted: sm_80"));
  const ShapeGrid none{{"batch", {1}}, {"tokens", {4}}, {"sequences", {8}}};
  CHECK(contains(
      std::string(
          plan_tuning({request_of(gdn::PrefillProblem{})}, none, "sm_80").error().message()),
      "none of these shapes"));
}

// The buckets of a Qwen3.5 size whose heads at TP 1, 2, 4 and 8 are powers of two, for the grid of
// the defaults, by plain loops.
std::size_t prefill_buckets(int heads) {
  std::set<std::tuple<int, int, int>> buckets;  // states, length, skew
  for (const int tp : {1, 2, 4, 8}) {
    for (const int sequences : {1, 4, 8}) {
      for (int tokens = 512; tokens <= 32768; tokens *= 2) {
        buckets.insert({sequences * heads / tp, tokens / sequences, 1});
        if (sequences > 1)
          buckets.insert({sequences * heads / tp, tokens / sequences, sequences / 2});
      }
    }
  }
  return buckets.size();
}

// Of those sizes, each of four numbers of channels.
std::size_t conv_buckets() {
  std::set<std::pair<int, int>> buckets;  // sequences, tokens of one
  for (int batch = 1; batch <= 256; batch *= 2) buckets.insert({batch, 1});
  for (const int sequences : {1, 4, 8}) {
    for (int tokens = 512; tokens <= 32768; tokens *= 2) {
      buckets.insert({sequences, tokens / sequences});
    }
  }
  return 4 * buckets.size();
}

TEST_CASE("a dry run plans what a model needs", "[cpu]") {
  const Cli cli;
  for (const auto& [name, heads] : {std::pair{"Qwen3.5-0.8B", 16}, std::pair{"Qwen3.5-35B-A3B", 32},
                                    std::pair{"Qwen3.5-397B-A17B", 64}}) {
    INFO(name);
    const json plan = dry_run(cli, std::string("--tp 1,2,4,8 --hf-config ") +
                                       CUBINERY_TEST_DIR "/data/models/" + name + "/config.json");
    REQUIRE(plan["spaces"].size() == 8);
    const json& decode = plan["spaces"][0];
    CHECK(decode["op"] == "gdn_decode");
    CHECK(decode["problems"] == 4);
    // 9 batches of four numbers of heads; 12 powers of two.
    CHECK(decode["buckets"].size() == 12);
    std::size_t shapes = 0;
    for (const json& bucket : decode["buckets"]) shapes += bucket["shapes"].get<std::size_t>();
    CHECK(shapes == 36);
    CHECK(plan["spaces"][1]["op"] == "gdn_decode");
    CHECK(plan["spaces"][1]["buckets"] == decode["buckets"]);
    const json& prefill = plan["spaces"][2];
    CHECK(prefill["op"] == "gdn_prefill");
    CHECK(prefill["buckets"].size() == prefill_buckets(heads));
    const json& verify = plan["spaces"][3];
    CHECK(verify["op"] == "gdn_verify");
    // Requests of 1, 2 and 4 tokens.
    CHECK(verify["buckets"].size() == 3 * decode["buckets"].size());
    const json& commit = plan["spaces"][4];
    CHECK(commit["op"] == "gdn_commit");
    CHECK(commit["buckets"].size() == decode["buckets"].size());
    const json& conv = plan["spaces"][5];
    CHECK(conv["op"] == "gdn_conv");
    CHECK(conv["buckets"].size() == conv_buckets());
    CHECK(plan["spaces"][6]["op"] == "gdn_conv");
    CHECK(plan["spaces"][6]["buckets"].size() == conv_buckets());
    // From 1 to 16 tokens of 1 to 256 requests.
    CHECK(plan["spaces"][7]["op"] == "gdn_conv");
    CHECK(plan["spaces"][7]["buckets"].size() == 4 * std::size_t{9 * 5});
    std::size_t buckets = 0, measurements = 0;
    for (const json& space : plan["spaces"]) {
      buckets += space["buckets"].size();
      measurements += space["buckets"].size() * space["configurations"].get<std::size_t>();
    }
    CHECK(plan["buckets"] == buckets);
    CHECK(plan["measurements"] == measurements);
  }
  CHECK(!fs::exists(cli.cache()));
}

TEST_CASE("all models with Gated DeltaNet share a space of each operator", "[cpu]") {
  const Cli cli;
  std::string arguments = "--tp 1,2,4,8";
  std::size_t models = 0;
  for (const auto& model : fs::directory_iterator(CUBINERY_TEST_DIR "/data/models")) {
    if (!model.path().filename().string().starts_with("Qwen")) continue;
    arguments += " --hf-config " + model.path().string() + "/config.json";
    ++models;
  }
  const json plan = dry_run(cli, arguments);
  REQUIRE(plan["spaces"].size() == 8);
  for (const json& space : plan["spaces"]) {
    CHECK(space["problems"] == 4 * models);
    std::set<std::string> buckets;
    for (const json& bucket : space["buckets"]) buckets.insert(bucket["bucket"].get<std::string>());
    CHECK(buckets.size() == space["buckets"].size());
  }
  const std::string one = "tune --dry-run --arch sm_90a --op gdn_decode --batch 8 " + arguments;
  const Output counts = cli.run(one);
  CHECK(counts.exit_code == 0);
  CHECK(!contains(counts.out, "states=256"));
  CHECK(contains(counts.out, "--verbose lists the buckets)\nAt most about "));
  CHECK(contains(counts.out, "; the budget is 10 min"));
  CHECK(
      contains(cli.run(one + " --budget 1s").out, "; the budget is 1 s: the same command goes on"));
  // Of the problem what is not as usual.
  CHECK(contains(cli.run("tune --dry-run --arch sm_90a --op gdn_decode --state-dtype bf16").out,
                 "  state_dtype=bf16\n"));
  CHECK(contains(cli.run("tune --dry-run --arch sm_90a --op gdn_decode --key-dim 128").out,
                 "  the default problem\n"));
  const Output text = cli.run(one + " --verbose");
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "gdn_decode: "));
  CHECK(contains(text.out, "states=256"));
  CHECK(contains(text.out, "nothing was measured"));
}

TEST_CASE("tuning a verification measures as many tokens as it has", "[cpu]") {
  const Cli cli;
  const auto plan = [&](const std::string& options) {
    const json found =
        dry_run(cli, "--op gdn_verify --batch 8 --hf-config " + kModel + " " + options);
    REQUIRE(found["spaces"].size() == 1);
    std::vector<std::string> buckets;
    for (const json& bucket : found["spaces"][0]["buckets"]) buckets.push_back(bucket["bucket"]);
    return buckets;
  };
  const auto of_tokens = [](std::initializer_list<int> tokens, int states) {
    std::vector<std::string> buckets;
    for (const int each : tokens) {
      buckets.push_back("states=" + std::to_string(states) + ";tokens=" + std::to_string(each));
    }
    return buckets;
  };
  CHECK(plan("") == of_tokens({1, 2, 4}, 256));
  CHECK(plan("--draft-tokens 8") == of_tokens({1, 2, 4, 8}, 256));
  CHECK(plan("--draft-tokens 8 --tokens-each 3,8") == of_tokens({4, 8}, 256));
}

std::string sorted_text(Shape shape) {
  std::sort(shape.begin(), shape.end(),
            [](const ShapeSize& a, const ShapeSize& b) { return a.name < b.name; });
  return to_text(shape);
}

TEST_CASE("what results are of is tuned again", "[cpu]") {
  const std::string path = CUBINERY_TEST_DIR "/../results/measured/h200.results.jsonl";
  std::set<std::string> wanted, planned;
  for (const TuningResult& result : parse_results(read_file(path).value(), path).results) {
    const Setting& setting = result.setting;
    wanted.insert(setting.op + " " + setting.bucket + " " + sorted_text(setting.shape));
  }
  const Result<std::vector<TuneSpace>> spaces = plan_tuning_again({path}, "sm_90a");
  REQUIRE(spaces);
  for (const TuneSpace& space : *spaces) {
    for (const PlannedShape& bucket : space.buckets)
      planned.insert(space.op + " " + bucket.bucket + " " + sorted_text(bucket.shape));
  }
  CHECK(planned == wanted);
  CHECK(dry_run(Cli(), "--results " + path)["spaces"].size() == spaces->size());
}

TEST_CASE("tune refuses results that it cannot plan", "[cpu]") {
  const Cli cli;
  const std::string file = CUBINERY_TEST_DIR "/../results/measured/h200.results.jsonl";
  const std::string empty = cli.dir() + "/empty.results.jsonl", other = cli.dir() + "/other.jsonl";
  std::ofstream(empty) << "\n";
  std::ofstream(other) << R"({"result":1,"op":"scale_rows"})"
                       << "\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--results " + file + " --op gdn_decode", "--results names problems and shapes"},
      {"--results " + file + " --batch 8", "--results names problems and shapes"},
      {"--results " + empty, "no result of a tuning"},
      {"--results /nowhere/a.jsonl", "/nowhere/a.jsonl"},
      {"--results " + other, "other.jsonl:1: "}};
  for (const auto& [arguments, text] : cases) {
    const Output output = cli.run("tune --dry-run --arch sm_90a " + arguments);
    INFO(arguments << "\n" << output.err);
    CHECK(output.exit_code == 2);
    CHECK(contains(output.err, text));
  }
}

TEST_CASE("tune refuses what it cannot use", "[cpu]") {
  const Cli cli;
  const std::string model = "tune --dry-run --arch sm_90a --hf-config " + kModel;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"tune", "accepted: --hf-config, --manifest"},
      {"tune --dry-run --arch sm_91 --key-dim 64", "--arch sm_91; accepted: sm_80, "},
      {model + " --batch 0", "--batch 0; accepted: numbers from 1 to 1073741824"},
      {model + " --batch 8:4", "--batch 8:4; accepted: "},
      {model + " --tokens many", "--tokens many; accepted: "},
      {model + " --sequences 1,,2", "--sequences 1,,2; accepted: "},
      {model + " --max-seqlen half", "--max-seqlen half; accepted: "},
      {model + " --budget 10", "--budget 10; accepted: a number of s, m or h"},
      {model + " --device -1", "--device"},
      {model + " --jobs 0", "1024"},
      {model + " --op gdn_decode --tokens 512",
       "--tokens 512: no problem is a gdn_prefill or gdn_conv"},
      {model + " --op gdn_prefill --batch 8",
       "--batch 8: no problem is a gdn_decode or gdn_verify or gdn_commit or gdn_conv"},
      {model + " --op gdn_decode --tokens-each 4",
       "--tokens-each 4: no problem is a gdn_verify or gdn_conv"},
      {model + " --tokens 4 --sequences 8", "none of these shapes"},
      {model + " --key-dim 100", "accepted: multiples of 16"},
      {model + " --json /nowhere/summary.json", "cannot write /nowhere/summary.json"},
  };
  for (const auto& [arguments, text] : cases) {
    const Output output = cli.run(arguments, "CUBINERY_DRIVER=" CUBINERY_FAKE_DRIVER);
    INFO(arguments << "\n" << output.err);
    CHECK(output.exit_code == 2);
    CHECK(contains(output.err, text));
    CHECK(output.err.find("cubinery: ") == 0);
  }
  CHECK(!fs::exists(cli.cache()));
}

TEST_CASE("tune needs a GPU and NVRTC", "[cpu]") {
  const Cli cli;
  const std::string model = "tune --hf-config " + kModel;
  const Output no_driver = cli.run(model, "CUBINERY_DRIVER=/nowhere");
  CHECK(no_driver.exit_code == 2);
  CHECK(contains(no_driver.err, "/nowhere"));
  const Output no_arch = cli.run(model + " --dry-run", "CUBINERY_DRIVER=/nowhere");
  CHECK(no_arch.exit_code == 2);
  CHECK(contains(no_arch.err, "--arch is missing and no GPU says which"));
  const Output no_nvrtc =
      cli.run(model + " --nvrtc /nowhere", "CUBINERY_DRIVER=" CUBINERY_FAKE_DRIVER);
  CHECK(no_nvrtc.exit_code == 1);
  CHECK(contains(no_nvrtc.err, "/nowhere"));
  // Of the GPU that is not there.
  const Output seen = cli.run(model + " --dry-run", "CUBINERY_DRIVER=" CUBINERY_FAKE_DRIVER);
  CHECK(seen.exit_code == 0);
  CHECK(!fs::exists(cli.cache()));
}

// What a progress line writes.
std::string written(bool is_terminal, const std::vector<TuneProgress>& steps) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    TuneProgressLine line(file, is_terminal, {3, 1});
    line.start_call(0);
    for (const TuneProgress& step : steps) line.update(step);
  }
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  CHECK(std::fread(text.data(), 1, text.size(), file) == text.size());
  std::fclose(file);
  return text;
}

TEST_CASE("progress shows the best so far", "[cpu]") {
  TuneProgress first{.op = "gdn_decode", .bucket = "states=256", .shapes = 2, .candidates = 9};
  first.what = "compiling";
  CHECK(describe(first) == "0/9 compiling states=256");
  TuneProgress later = first;
  later.measured = 5;
  later.best = "warps=4";
  later.best_ms = 0.1421;
  later.default_ms = 0.1467;
  later.what = "timing";
  CHECK(describe(later) == "5/9 timing 142.1 us (-3.1 %) states=256: warps=4");
  TuneProgress next = first;
  next.bucket = "states=512";
  next.shapes_done = 1;
  TuneProgress end = next;
  end.shapes_done = 2;
  CHECK(written(false, {first, later, next, end}) ==
        "[1/4] gdn_decode 5/9 timing 142.1 us (-3.1 %) states=256: warps=4\n"
        "[2/4] gdn_decode 0/9 compiling states=512\n");
  // A second call for the space goes through the first bucket again.
  CHECK(written(false, {first, next, first, end}) ==
        "[1/4] gdn_decode 0/9 compiling states=256\n"
        "[2/4] gdn_decode 0/9 compiling states=256\n");
  const std::string drawn = written(true, {first, later});
  CHECK(contains(drawn, "0/4 5/9 timing 142.1 us (-3.1 %) states=256"));
  CHECK(!contains(drawn, "\n"));
}

TEST_CASE("the summary compares with the default", "[cpu]") {
  TuneOutcome run;
  run.directory = "/there";
  const PlannedShape planned{{{"batch", 8}}, "states=256", "test", 2};
  TunedShape tuned;
  tuned.chosen = 3;
  tuned.otherwise = 1;
  tuned.chosen_ms.median = 0.1;
  tuned.otherwise_ms.median = 0.11;
  tuned.margin = 0.02;
  tuned.uncertainty = 0.015;
  tuned.complete = true;
  TuneSpace plan{.op = "gdn_decode", .text = "key_dim=128", .configurations = 9, .problems = 1};
  const PlannedShape rest{{{"batch", 16}}, "states=512", "test", 1};
  plan.buckets = {planned, rest};
  run.spaces.push_back({plan, {{planned, tuned, "warps=4", "warps=1"}, {rest, {}, "", ""}}, 7});
  const TuneReport report{.arch = "sm_90a", .gpu = "NVIDIA H200"};

  const std::string text = run_text(run, report);
  CHECK(contains(text, "  the default problem\n"));
  CHECK(contains(text, "states=256"));
  CHECK(contains(text, "110.00"));
  CHECK(contains(text, "100.00"));
  CHECK(contains(text, "9.1 %"));
  CHECK(contains(text, "2.0 %"));
  CHECK(contains(text, "not finished"));
  CHECK(contains(text, "1 of 2 buckets decided"));
  CHECK(contains(text, "run the same command again"));
  CHECK(contains(text, "Results: /there"));
  const json document = run_json(run, report);
  CHECK(document["measured"] == 7);
  const json& buckets = document["spaces"][0]["buckets"];
  CHECK(buckets[0]["chosen"] == "warps=4");
  CHECK(buckets[0]["default"] == "warps=1");
  CHECK(buckets[0]["shapes"] == 2);
  CHECK(buckets[0]["gain"].get<double>() == Approx(1 - 0.1 / 0.11));
  CHECK(buckets[0]["margin"] == 0.02);
  CHECK(buckets[0]["uncertainty"] == 0.015);
  CHECK(buckets[1]["complete"] == false);
  CHECK(!buckets[1].contains("chosen"));
}

}  // namespace
}  // namespace cubinery
