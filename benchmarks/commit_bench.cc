// Times GDN commit: the accepted tokens of all layers of a model, next to the device's copy rate.
//
//   commit_bench [--quick] [--layers 48] [--batch 32] [--tokens 8] [--accepted 4]
//                [--out FILE.json] [--commit abc1234]
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/decode_rows.h"
#include "benchmarks/launch_check.h"
#include "harness/gdn_operators.h"
#include "runtime/gdn/shared/problem_check.h"

namespace {

using cubinery::DType;
using cubinery::GdnOperands;
using cubinery::Tensor;
using nlohmann::ordered_json;
namespace bench = cubinery::bench;
namespace gdn = cubinery::gdn;

struct Size {
  int layers = 48;
  int batch = 32;
  int tokens = 8;
  int accepted = 4;
};

// The layers of a model: sets of operands, as many as it takes.
class Layers {
 public:
  Layers(const bench::Gpu& gpu, const gdn::CommitProblem& problem, const Size& size) {
    while (static_cast<int>(layers_.size()) < size.layers) {
      operands_.push_back(
          bench::request_operands(gpu, cubinery::as_prefill(problem), size.batch, size.tokens));
      for (int set = 0; set < operands_.back().sets(); ++set) {
        layers_.push_back(cubinery::as_commit(operands_.back().args(set)).layer);
      }
    }
    layers_.resize(cubinery::idx(size.layers));
  }
  const GdnOperands& first() const { return operands_.front(); }
  const std::vector<gdn::CommitLayer>& tensors() const { return layers_; }

 private:
  std::vector<GdnOperands> operands_;
  std::vector<gdn::CommitLayer> layers_;
};

// On the device.
template <class T>
bench::DeviceBuffer uploaded(const bench::Gpu& gpu, const std::vector<T>& numbers) {
  bench::DeviceBuffer buffer(gpu, numbers.size() * sizeof(T));
  buffer.upload(std::as_bytes(std::span(numbers)));
  return buffer;
}

// Of all layers: states twice, k, v and gates of accepted tokens once.
double least_bytes(const gdn::CommitProblem& p, const Size& size) {
  const double heads = p.heads.count();
  const double states = 2 * heads * p.key_dim * p.value_dim * size_of(p.states.dtype);
  const double rows = (p.heads.k * p.key_dim + p.heads.v * p.value_dim) * size_of(p.dtype) +
                      heads * (size_of(p.inputs.gate_dtype) + size_of(p.inputs.beta_dtype));
  return size.layers * static_cast<double>(size.batch) * (states + size.accepted * rows);
}

void run_row(const bench::Gpu& gpu, DType state_dtype, const Size& size, int replays,
             double copy_tb_s, bench::Results* results) {
  const gdn::CommitProblem problem = bench::engine_commit(state_dtype, size.tokens);
  const gdn::Commit commit = gpu.context().prepare(problem).value();
  const cubinery::Chosen chosen = commit.choice({.layers = size.layers, .requests = size.batch});
  const Layers layers(gpu, problem, size);
  const bench::Errors errors = bench::launch_errors(commit, gpu, layers.first());
  const bench::DeviceBuffer table = uploaded(gpu, commit.table(layers.tensors()).value());
  const bench::DeviceBuffer counts =
      uploaded(gpu, std::vector<std::int32_t>(cubinery::idx(size.batch), size.accepted));
  const gdn::CommitArgs args{
      .layers = Tensor::contiguous(table.data(), DType::kI64, {size.layers, 32}),
      .accepted = Tensor::contiguous(counts.data(), DType::kI32, {size.batch})};
  const cubinery::Timing ms = bench::time_graph(
      gpu, 1, replays, [&](cubinery::Stream stream, int) { return commit.launch(stream, args); });
  ordered_json measured = bench::timed_members(chosen, ms, least_bytes(problem, size), copy_tb_s);
  measured["error_state"] = bench::significant(errors.state.value());
  results->put({{"op", "gdn_commit"},
                {"layers", size.layers},
                {"batch", size.batch},
                {"tokens", size.tokens},
                {"accepted", size.accepted},
                {"qk_heads", problem.heads.k},
                {"v_heads", problem.heads.v},
                {"state_dtype", gdn::value_text(state_dtype)}},
               measured);
}

int run(int argc, char** argv) {
  const bench::Arguments arguments(
      argc, argv, {"--quick"},
      {"--layers", "--batch", "--tokens", "--accepted", "--out", "--commit"});
  const bool quick = arguments.has("--quick");
  const auto one = [&](const char* name, int otherwise) {
    return arguments.get_list(name, {otherwise}).front();
  };
  const Size size{.layers = one("--layers", quick ? 4 : 48),
                  .batch = one("--batch", 32),
                  .tokens = one("--tokens", 8),
                  .accepted = one("--accepted", 4)};
  const auto gpu = bench::open_gpu(cubinery::Options::from_env().value());
  bench::Results results(arguments.get("--out"), arguments.get("--commit", "unknown"));
  bench::describe(*gpu, &results);
  const double copy_tb_s = bench::copy_rate_tb_s(*gpu, quick);
  std::printf("copy rate %.3f TB/s (read + write)\n", copy_tb_s);
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    run_row(*gpu, state_dtype, size, quick ? 5 : 40, copy_tb_s, &results);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return bench::run_main(run, argc, argv); }
