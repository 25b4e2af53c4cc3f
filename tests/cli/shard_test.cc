#include <algorithm>
#include <map>
#include <set>

#include "cli/plan.h"
#include "cli/shard.h"
#include "cli/tune_plan.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

std::vector<Job> some_jobs(std::size_t count) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < count; ++i) {
    Job job;
    job.kernel = KernelSpec{.canonical = "gdn_decode;key_dim=" + std::to_string(i / 2)};
    job.arch = i % 2 == 0 ? "sm_80" : "sm_90a";
    jobs.push_back(job);
  }
  return jobs;
}

Request named_request(const Problem& problem, std::string origin, std::string arch = "") {
  return {.asked = {.form = {}, .problem = problem, .of = {}},
          .origin = std::move(origin),
          .arch = std::move(arch)};
}

std::string name_of(const Job& job) { return job.arch + " " + job.kernel.key(); }
std::string name_of(const TuneSpace& space) { return space.text; }

template <class Each>
std::set<std::string> names(const std::vector<Each>& all) {
  std::set<std::string> set;
  for (const Each& each : all) set.insert(name_of(each));
  return set;
}

// Of each shard its part; together they are the whole, once.
template <class Each>
std::vector<std::vector<Each>> dealt(const std::vector<Each>& all, std::size_t shards) {
  std::vector<std::vector<Each>> parts;
  std::set<std::string> found;
  std::size_t total = 0;
  for (std::size_t i = 1; i <= shards; ++i) {
    parts.push_back(select_shard(all, Shard{i, shards}));
    total += parts.back().size();
    found.merge(names(parts.back()));
  }
  CHECK(total == all.size());
  CHECK(found == names(all));
  return parts;
}

TEST_CASE("shards are disjoint, complete and balanced", "[cpu]") {
  for (const std::size_t count : {0u, 1u, 2u, 7u, 101u}) {
    for (const std::size_t shards : {1u, 2u, 3u, 8u, 200u}) {
      for (const std::vector<Job>& part : dealt(some_jobs(count), shards)) {
        CHECK(part.size() >= count / shards);
        CHECK(part.size() <= (count + shards - 1) / shards);
      }
    }
  }
}

TEST_CASE("a shard does not depend on the order of the jobs", "[cpu]") {
  std::vector<Job> jobs = some_jobs(20);
  const std::set<std::string> before = names(select_shard(jobs, {2, 3}));
  std::reverse(jobs.begin(), jobs.end());
  CHECK(names(select_shard(jobs, {2, 3})) == before);
}

TEST_CASE("a shard keeps the order of the jobs", "[cpu]") {
  const std::vector<Job> jobs = some_jobs(20);
  const std::vector<Job> whole = select_shard(jobs, {1, 1});
  REQUIRE(whole.size() == jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    CHECK(whole[i].kernel.key() == jobs[i].kernel.key());
    CHECK(whole[i].arch == jobs[i].arch);
  }
}

using Environment = std::map<std::string, std::string>;

Result<Shard> parsed(std::string_view text, const Environment& environment = {}) {
  return parse_shard(text, [&](const char* name) {
    const auto variable = environment.find(name);
    return variable == environment.end() ? std::string() : variable->second;
  });
}

TEST_CASE("shards are written i/n", "[cpu]") {
  CHECK(parsed("2/8").value().index == 2);
  CHECK(parsed("2/8").value().count == 8);
  CHECK(parsed("2/8", {{"RANK", "0"}, {"WORLD_SIZE", "4"}}).value().count == 8);
  CHECK(to_text(parsed("2/8").value()) == "Part 2 of 8\n");
  CHECK(to_text(parsed("1/1").value()).empty());
  for (const char* text :
       {"", "1", "/", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "1 /2", "a/b", "1/",
        "4294967296/4294967297", "auto/", "auto/0", "auto/-1", "auto/a", "Auto"}) {
    const auto shard = parsed(text);
    REQUIRE(!shard);
    CHECK(shard.error().code() == Code::kInvalidArgument);
    CHECK(shard.error().message() ==
          "--shard " + std::string(text) +
              "; accepted: i/n with 1 <= i <= n, such as 2/8, auto, or auto/n");
  }
}

TEST_CASE("launchers say which shard a process has", "[cpu]") {
  struct Case {
    const char* text;
    Environment environment;
    std::size_t index, count;
  };
  const Environment array = {
      {"SLURM_ARRAY_TASK_ID", "5"}, {"SLURM_ARRAY_TASK_COUNT", "3"}, {"SLURM_ARRAY_TASK_MIN", "3"}};
  Environment steps = array;
  steps.insert({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  const Environment step = {{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  Environment inner = step;  // torchrun, or mpirun, in a step
  inner.insert({{"RANK", "9"}, {"WORLD_SIZE", "32"}});
  const Case cases[] = {
      {"auto", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 1, 1},
      {"auto", {{"RANK", "7"}, {"WORLD_SIZE", "8"}}, 8, 8},
      {"auto/8", {{"RANK", "7"}, {"WORLD_SIZE", "8"}}, 8, 8},
      {"auto", {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}}, 3, 3},
      {"auto", step, 4, 4},
      {"auto", array, 3, 3},
      {"auto", steps, 10, 12},
      {"auto", inner, 10, 32},
      {"auto/5", {{"JOB_COMPLETION_INDEX", "4"}}, 5, 5},
      // RANK alone is somebody else's.
      {"auto/5", {{"RANK", "x"}, {"JOB_COMPLETION_INDEX", "4"}}, 5, 5},
  };
  for (const Case& each : cases) {
    const Result<Shard> shard = parsed(each.text, each.environment);
    REQUIRE(shard);
    CHECK(shard->index == each.index);
    CHECK(shard->count == each.count);
  }
  CHECK(to_text(parsed("auto", step).value()) ==
        "Part 4 of 4, says Slurm (SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4)\n");
}

TEST_CASE("the jobs of an array and the tasks of their steps are all parts", "[cpu]") {
  std::set<std::size_t> all;
  for (int job = 0; job < 3; ++job) {
    for (int task = 0; task < 4; ++task) {
      const Result<Shard> shard = parsed("auto", {{"SLURM_ARRAY_TASK_ID", std::to_string(job + 2)},
                                                  {"SLURM_ARRAY_TASK_COUNT", "3"},
                                                  {"SLURM_ARRAY_TASK_MIN", "2"},
                                                  {"SLURM_PROCID", std::to_string(task)},
                                                  {"SLURM_STEP_NUM_TASKS", "4"}});
      CHECK(shard->count == 12);
      all.insert(shard->index);
    }
  }
  CHECK(all.size() == 12);
  CHECK(*all.begin() == 1);
  CHECK(*all.rbegin() == 12);
}

TEST_CASE("what launchers cannot say is refused", "[cpu]") {
  struct Case {
    const char* text;
    Environment environment;
    const char* message;
  };
  const Case cases[] = {
      {"auto", {}, "--shard auto: no launcher says which part this is; accepted: processes of"},
      {"auto/4", {}, "--shard auto/4: no launcher says"},
      // A batch script without srun.
      {"auto", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, "no launcher says which part"},
      {"auto",
       {{"JOB_COMPLETION_INDEX", "1"}},
       "Kubernetes (JOB_COMPLETION_INDEX=1) does not say of how many parts; accepted: auto/n"},
      {"auto/1", {{"JOB_COMPLETION_INDEX", "1"}}, "Kubernetes (JOB_COMPLETION_INDEX=1) is no part"},
      {"auto/8",
       {{"RANK", "1"}, {"WORLD_SIZE", "4"}},
       "torchrun (RANK=1, WORLD_SIZE=4) says of 4 parts; accepted: auto or auto/4"},
      {"auto", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "is none of 4 indices from 0 on"},
      {"auto", {{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, "RANK=-1 is no number"},
      {"auto", {{"RANK", "1"}, {"WORLD_SIZE", "4x"}}, "WORLD_SIZE=4x is no number"},
      {"auto", {{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "is none of 0 indices"},
      {"auto",
       {{"SLURM_ARRAY_TASK_ID", "9"},
        {"SLURM_ARRAY_TASK_COUNT", "3"},
        {"SLURM_ARRAY_TASK_MIN", "1"}},
       "is none of 3 indices from 1 on; accepted: launchers that count without gaps"},
  };
  for (const Case& each : cases) {
    const Result<Shard> shard = parsed(each.text, each.environment);
    REQUIRE(!shard);
    CHECK(shard.error().code() == Code::kInvalidArgument);
    INFO(shard.error().message());
    CHECK(shard.error().message().find(each.message) != std::string_view::npos);
  }
}

std::vector<TuneSpace> some_spaces(std::size_t count) {
  std::vector<TuneSpace> spaces;
  for (std::size_t i = 0; i < count; ++i) {
    spaces.push_back({.op = "gdn_decode",
                      .text = "key_dim=" + std::to_string(i),
                      .configurations = 10 + i % 7,
                      .buckets = std::vector<PlannedShape>(1 + i % 5)});
  }
  return spaces;
}

std::size_t measurements(const std::vector<TuneSpace>& spaces) {
  std::size_t sum = 0;
  for (const TuneSpace& space : spaces) sum += space.measurements();
  return sum;
}

TEST_CASE("shards of spaces are disjoint, complete and of about the same work", "[cpu]") {
  for (const std::size_t count : {0u, 1u, 2u, 7u, 101u}) {
    for (const std::size_t shards : {1u, 2u, 3u, 8u, 200u}) {
      const std::vector<TuneSpace> spaces = some_spaces(count);
      std::size_t most = 0, least = measurements(spaces);
      for (const std::vector<TuneSpace>& part : dealt(spaces, shards)) {
        most = std::max(most, measurements(part));
        least = std::min(least, measurements(part));
      }
      CHECK(most - least <= 5 * 16);  // a space
    }
  }
}

TEST_CASE("a shard of spaces does not depend on their order, and keeps it", "[cpu]") {
  std::vector<TuneSpace> spaces = some_spaces(20);
  const std::vector<TuneSpace> part = select_shard(spaces, Shard{2, 3});
  std::reverse(spaces.begin(), spaces.end());
  std::vector<TuneSpace> reversed = select_shard(spaces, Shard{2, 3});
  std::reverse(reversed.begin(), reversed.end());
  REQUIRE(reversed.size() == part.size());
  for (std::size_t i = 0; i < part.size(); ++i) CHECK(reversed[i].text == part[i].text);
}

TEST_CASE("a form that no path computes is left out where another one stands in", "[cpu]") {
  const Request first = named_request(gdn::DecodeProblem{}, "a");
  Request fp8 = named_request(gdn::DecodeProblem{.states = {.dtype = DType::kF8E4M3}}, "a");
  fp8.may_be_left_out = true;
  const std::vector<std::string> archs = {"sm_80", "sm_89"};
  std::map<std::string, std::size_t> of_arch;
  for (const Job& job : plan_jobs({first, fp8}, archs).value()) ++of_arch[job.arch];
  CHECK(of_arch["sm_80"] == plan_jobs({first}, {"sm_80"})->size());
  CHECK(of_arch["sm_89"] == plan_jobs({first, fp8}, {"sm_89"})->size());
  CHECK(of_arch["sm_89"] > plan_jobs({first}, {"sm_89"})->size());
  // Alone, beside another operator or model, or named.
  const Request prefill = named_request(gdn::PrefillProblem{}, "a");
  Request other = first;
  other.origin = "b";
  for (const std::vector<Request>& requests :
       {std::vector{fp8}, std::vector{prefill, fp8}, std::vector{other, fp8}}) {
    CHECK(plan_jobs(requests, archs).error().code() == Code::kUnsupported);
  }
  fp8.may_be_left_out = false;
  CHECK(plan_jobs({first, fp8}, archs).error().message().starts_with("a: gdn_decode: no path"));
}

TEST_CASE("problems that share a kernel are merged", "[cpu]") {
  gdn::DecodeProblem large;
  large.heads.v = 64;
  gdn::DecodeProblem half;
  half.states.dtype = DType::kBF16;
  const std::vector<Request> requests = {
      named_request(gdn::DecodeProblem{}, "a"),
      named_request(large, "b"),  // head counts are not in the key
      named_request(half, "c", "sm_86"),
  };
  const std::size_t each = gdn::DecodeProblem{}.kernels("sm_80").value().size();
  const std::vector<Job> jobs = plan_jobs(requests, {"sm_80", "sm_89"}).value();
  REQUIRE(jobs.size() == 3 * each);
  for (const Job& job : jobs) {
    const bool own = job.kernel.key().find(";state_dtype=bf16") != std::string::npos;
    CHECK(own == (job.arch == "sm_86"));
    CHECK(job.problems == (own ? 1 : 2));
  }
}

TEST_CASE("prefill problems share what their states leave alone", "[cpu]") {
  const std::vector<Request> requests = {
      named_request(gdn::PrefillProblem{}, "a"),
      named_request(gdn::PrefillProblem{.heads = {.v = 64}}, "b"),
      named_request(gdn::PrefillProblem{.states = {.dtype = DType::kBF16}}, "c"),
  };
  const std::vector<Job> jobs = plan_jobs(requests, {"sm_80"}).value();
  std::map<std::string, std::vector<std::size_t>> problems;  // of each kernel's jobs
  for (const Job& job : jobs) problems[job.kernel.name()].push_back(job.problems);
  CHECK(problems.at("gdn_prefill_chunks") == std::vector<std::size_t>{3});
  const std::size_t scans = gdn::PrefillProblem{}.kernels("sm_80").value().size() - 1;
  std::vector<std::size_t> expected(scans, 2);
  expected.resize(2 * scans, 1);
  CHECK(problems.at("gdn_prefill_scan") == expected);
  CHECK(problems.size() == 2);
}

TEST_CASE("a request with an unknown architecture is refused", "[cpu]") {
  const auto jobs =
      plan_jobs({named_request(gdn::DecodeProblem{}, "list.json, entry 1", "sm_1")}, {});
  REQUIRE(!jobs);
  CHECK(jobs.error().message().find("list.json, entry 1: arch = \"sm_1\"; accepted: sm_80") == 0);
}

}  // namespace
}  // namespace cubinery
