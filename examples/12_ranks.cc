// One prompt on the GPUs of this machine, a thread for each, by NCCL; beside the same prompt on
// one.
//
// NCCL is found when the program runs, so that it can be built without it.  With nccl.h, call its
// functions; between processes, ncclCommInitRank().
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/gdn.h"
#include "cubinery/ranks.h"
#include "tensors.h"

using namespace cubinery;

constexpr int kHeads = 4, kDim = 128, kTokens = 20000, kSegment = 1024;

struct Nccl {
  int (*init_all)(void** comms, int count, const int* devices) = nullptr;
  int (*destroy)(void* comm) = nullptr;
};

bool find_nccl(Nccl* nccl) {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return false;
  nccl->init_all = reinterpret_cast<decltype(nccl->init_all)>(dlsym(library, "ncclCommInitAll"));
  nccl->destroy = reinterpret_cast<decltype(nccl->destroy)>(dlsym(library, "ncclCommDestroy"));
  return nccl->init_all != nullptr && nccl->destroy != nullptr;
}

gdn::PrefillProblem problem() {
  gdn::PrefillProblem problem{.heads = {.q = kHeads, .k = kHeads, .v = kHeads}};
  problem.inputs.use_qk_l2norm = true;
  problem.varlen = true;
  problem.context_parallel = true;
  problem.segment_tokens = kSegment;
  return problem;
}

// All tokens, in memory that every GPU reaches; of a model each rank would have its own.
struct Prompt {
  Tensor q = values(DType::kBF16, 0, 1, {kTokens, kHeads, kDim});
  Tensor k = values(DType::kBF16, 0, 1, {kTokens, kHeads, kDim});
  Tensor v = values(DType::kBF16, 0, 1, {kTokens, kHeads, kDim});
  Tensor g = values(DType::kF32, -0.1f, 0.02f, {kTokens, kHeads});
  Tensor beta = values(DType::kF32, 0.5f, 0.1f, {kTokens, kHeads});
};

// Tokens `first` to end - 1 of the prompt.
gdn::PrefillArgs args_of(const Prompt& prompt, const Tensor& o, int first, int end) {
  const auto share = [&](Tensor x) {
    x.data = static_cast<char*>(x.data) + first * x.strides[0] * size_of(x.dtype);
    x.shape[0] = end - first;
    return x;
  };
  gdn::PrefillArgs args{.q = share(prompt.q),
                        .k = share(prompt.k),
                        .v = share(prompt.v),
                        .g = share(prompt.g),
                        .beta = share(prompt.beta),
                        .o = share(o)};
  args.cu_seqlens = numbers({0, end - first}, {2});
  args.state = values(DType::kF32, 0, 0, {1, kHeads, kDim, kDim});
  args.state_out = values(DType::kF32, 0, 0, {1, kHeads, kDim, kDim});
  return args;
}

gdn::Workspace workspace_of(const gdn::Prefill& prefill, int tokens) {
  gdn::Workspace workspace{.bytes = prefill.workspace_bytes({.tokens = tokens, .sequences = 1})};
  if (cudaMalloc(&workspace.data, workspace.bytes) != cudaSuccess) std::exit(2);
  return workspace;
}

// What rank `rank` of `count` does with its GPU.  Returns what has failed.
Status run(int rank, int count, void* comm, const gdn::PrefillArgs& args) {
  cudaSetDevice(rank);
  Options options;
  options.device = rank;
  const auto context = Context::create(options);
  if (!context) return context.error().clone();
  const auto prepared = context->prepare(problem());
  if (!prepared) return prepared.error().clone();
  const auto ranks = NcclRanks::create(*context, comm, std::chrono::minutes(1));
  if (!ranks) return ranks.error().clone();
  const auto prefill = gdn::RankPrefill::create(*prepared, *ranks);
  if (!prefill) return prefill.error().clone();

  gdn::RankNeighbours neighbours;
  if (rank > 0) neighbours.source = rank - 1;
  if (rank + 1 < count) neighbours.target = rank + 1;
  const auto tokens = static_cast<int>(args.q.shape[0]);
  Status status =
      prefill->launch(nullptr, args, workspace_of(prefill->prefill(), tokens), neighbours);
  if (status.ok() && cudaDeviceSynchronize() != cudaSuccess) std::exit(2);
  return status;
}

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("no GPU"), 77;
  Nccl nccl;
  if (!find_nccl(&nccl)) return std::puts("no NCCL"), 77;
  const int count = std::min(devices, 4);
  std::vector<void*> comms(static_cast<std::size_t>(count));
  if (nccl.init_all(comms.data(), count, nullptr) != 0) return 2;

  // Ranks begin at multiples of a segment, for the bits of one rank.
  const Prompt prompt;
  const Tensor o = values(DType::kBF16, 0, 0, {kTokens, kHeads, kDim});
  const int segments = (kTokens + kSegment - 1) / kSegment;
  std::vector<Status> failed(comms.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    const int first = segments * rank / count * kSegment;
    const int end = std::min(segments * (rank + 1) / count * kSegment, kTokens);
    std::printf("rank %d of %d: tokens %d to %d\n", rank, count, first, end - 1);
    threads.emplace_back([&, rank, args = args_of(prompt, o, first, end)] {
      const auto i = static_cast<std::size_t>(rank);
      failed[i] = run(rank, count, comms[i], args);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (void* comm : comms) nccl.destroy(comm);
  for (const Status& status : failed) {
    if (!status.ok()) return std::printf("%s\n", std::string(status.message()).c_str()), 1;
  }

  cudaSetDevice(0);
  const Tensor expected = values(DType::kBF16, 0, 0, {kTokens, kHeads, kDim});
  const gdn::Prefill prefill = Context::create({}).value().prepare(problem()).value();
  const Status status = prefill.launch(nullptr, args_of(prompt, expected, 0, kTokens),
                                       workspace_of(prefill, kTokens));
  if (!status.ok() || cudaDeviceSynchronize() != cudaSuccess) return 2;
  const bool same =
      std::memcmp(o.data, expected.data, sizeof(std::uint16_t) * kTokens * kHeads * kDim) == 0;
  std::printf("same bits as on one: %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
}
