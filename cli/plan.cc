#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "cli/print.h"
#include "codegen/identity.h"
#include "codegen/nearest.h"

namespace cubinery {
namespace {

// The architectures that anybody asks for: the common ones, then those of single requests.
Result<std::vector<std::string>> all_archs(const std::vector<Request>& requests,
                                           std::vector<std::string> archs) {
  const std::vector<std::string>& known = known_architectures();
  for (const Request& request : requests) {
    if (request.arch.empty()) continue;
    if (std::find(known.begin(), known.end(), request.arch) == known.end()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: arch = \"{}\"; accepted: {}{}", request.origin, request.arch,
                                join(known), did_you_mean(request.arch, known)));
    }
    if (std::find(archs.begin(), archs.end(), request.arch) == archs.end()) {
      archs.push_back(request.arch);
    }
  }
  return archs;
}

Result<std::vector<AskedKernel>> kernels_of(const Request& request, std::string_view arch,
                                            const ResultsByOperator& results,
                                            const std::vector<std::string>& paths) {
  if (request.own_kernel) return std::vector<AskedKernel>{*request.own_kernel};
  const Problem& problem = request.asked.problem;
  const auto known = results.find(operator_of(problem));
  const Result<std::vector<KernelSpec>> specs = known != results.end()
                                                    ? kernels(problem, arch, paths, known->second)
                                                    : kernels(problem, arch, paths);
  if (!specs) return specs.error().clone();
  return std::vector<AskedKernel>(specs->begin(), specs->end());
}

// The requests on one architecture; each is asked once, when somebody wants to know.
class OnArch {
 public:
  using Kernels = Result<std::vector<AskedKernel>>;

  OnArch(const std::vector<Request>& requests, const std::string& arch,
         const ResultsByOperator& results, const std::vector<std::string>& paths)
      : requests_(requests),
        arch_(arch),
        results_(results),
        paths_(paths),
        kernels_(requests.size()) {}

  const Kernels& kernels(const Request& request) {
    std::optional<Kernels>& kernels = kernels_[static_cast<std::size_t>(&request - &requests_[0])];
    if (!kernels) kernels = kernels_of(request, arch_, results_, paths_);
    return *kernels;
  }

  // Whether another form has kernels where the request has none.
  bool is_left_out(const Request& request) {
    return std::any_of(requests_.begin(), requests_.end(), [&](const Request& other) {
      return stands_in(other, request) && kernels(other);
    });
  }

  // Whether the form in whose place the request's would be is there.
  bool is_replaced(const Request& request) {
    const std::string& instead_of = request.asked.instead_of;
    if (instead_of.empty() || !request.may_be_left_out) return false;
    return std::any_of(requests_.begin(), requests_.end(), [&](const Request& other) {
      return other.origin == request.origin && other.asked.form == instead_of && kernels(other);
    });
  }

 private:
  const std::vector<Request>& requests_;
  const std::string& arch_;
  const ResultsByOperator& results_;
  const std::vector<std::string>& paths_;
  std::vector<std::optional<Kernels>> kernels_;  // by request
};

std::string rank_of(const Job& job) { return digest_of(job.arch + " " + job.kernel.id_anywhere()); }

}  // namespace

Result<std::vector<Job>> plan_jobs(const std::vector<Request>& requests,
                                   const std::vector<std::string>& archs,
                                   const ResultsByOperator& results,
                                   const std::vector<std::string>& paths, LeftOuts* left_out) {
  const Result<std::vector<std::string>> wanted = all_archs(requests, archs);
  if (!wanted) return wanted.error().clone();
  std::vector<Job> jobs;
  std::map<std::pair<std::string, std::string>, std::size_t> index;  // (arch, id) -> place in jobs
  for (const std::string& arch : *wanted) {
    const bool is_common = std::find(archs.begin(), archs.end(), arch) != archs.end();
    OnArch there(requests, arch, results, paths);
    for (const Request& request : requests) {
      if (request.arch.empty() ? !is_common : request.arch != arch) continue;
      if (there.is_replaced(request)) continue;
      const Result<std::vector<AskedKernel>>& kernels = there.kernels(request);
      if (!kernels) {
        if (kernels.error().code() == Code::kUnsupported && there.is_left_out(request)) {
          if (left_out != nullptr) left_out->add_replaced(request, kernels.error(), arch);
          continue;
        }
        return Status(kernels.error().code(),
                      fmt::format("{}: {}", request.origin, kernels.error().message()));
      }
      for (const AskedKernel& kernel : *kernels) {
        const auto [place, is_new] = index.try_emplace({arch, kernel.id()}, jobs.size());
        if (is_new) jobs.push_back({.kernel = kernel, .arch = arch});
        ++jobs[place->second].problems;
      }
    }
  }
  return jobs;
}

std::vector<Job> select_shard(std::vector<Job> jobs, const Shard& shard) {
  std::vector<std::pair<std::string, std::size_t>> ranked;
  for (std::size_t i = 0; i < jobs.size(); ++i) ranked.emplace_back(rank_of(jobs[i]), i);
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::size_t> mine;
  for (std::size_t rank = shard.index - 1; rank < ranked.size(); rank += shard.count) {
    mine.push_back(ranked[rank].second);
  }
  return taken(std::move(jobs), std::move(mine));
}

}  // namespace cubinery
