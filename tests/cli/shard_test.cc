#include <algorithm>
#include <map>
#include <set>

#include "cli/plan.h"
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

std::set<std::string> names(const std::vector<Job>& jobs) {
  std::set<std::string> set;
  for (const Job& job : jobs) set.insert(job.arch + " " + job.kernel.key());
  return set;
}

TEST_CASE("shards are disjoint, complete and balanced", "[cpu]") {
  for (const std::size_t count : {0u, 1u, 2u, 7u, 101u}) {
    for (const std::size_t shards : {1u, 2u, 3u, 8u, 200u}) {
      const std::vector<Job> jobs = some_jobs(count);
      std::set<std::string> all;
      std::size_t total = 0;
      for (std::size_t i = 1; i <= shards; ++i) {
        const std::vector<Job> part = select_shard(jobs, {i, shards});
        CHECK(part.size() >= count / shards);
        CHECK(part.size() <= (count + shards - 1) / shards);
        total += part.size();
        all.merge(names(part));
      }
      CHECK(total == count);
      CHECK(all == names(jobs));
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

TEST_CASE("shards are written i/n", "[cpu]") {
  CHECK(parse_shard("2/8").value().index == 2);
  CHECK(parse_shard("2/8").value().count == 8);
  for (const char* text :
       {"", "1", "/", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "1 /2", "a/b", "1/"}) {
    const auto shard = parse_shard(text);
    REQUIRE(!shard);
    CHECK(shard.error().code() == Code::kInvalidArgument);
    CHECK(shard.error().message() ==
          "--shard " + std::string(text) + "; accepted: i/n with 1 <= i <= n, such as 2/8");
  }
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
