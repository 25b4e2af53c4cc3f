// Causal convolution of each channel, activation, and the split into q, k and v, in one pass over
// the tokens; on request q and k normalised, and the gates:
//
//   y[t] = act(bias + sum over i < width of weight[i] x[t - width + 1 + i])
//
// One warp <-> neighbouring channels, lane_channels in each lane, and a run of tokens, one behind
// the other, while the next rows are on their way.  A warp needs no other: what is in front of its
// run it reads itself, from x or from the state.  More warps for each run make the gates.
#include "common/checkpoints.cuh"
#include "common/launch.cuh"
#include "common/uniform.cuh"
#include "gdn_conv/gates.cuh"
#include "gdn_conv/key.h"
#include "gdn_conv/outputs.cuh"
#include "gdn_conv/places.cuh"
#include "gdn_conv/rows.cuh"
#include "gdn_conv/runs.cuh"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnConvKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnConvKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_conv: key outside the tuning space");

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own

using Columns = dev::Columns<kKey>;
using InputRow = dev::InputRow<kKey>;
using Lane = dev::LaneChannels<kKey>;
using Outputs = dev::Outputs<kKey>;
using RowQueue = dev::RowQueue<kKey>;
using Taps = dev::Taps<kKey>;
using TapsInMemory = dev::TapsInMemory<kKey>;
using Window = dev::Window<kKey>;
using Kind = dev::Slots::Kind;
constexpr int kCount = kKey.lane_channels;
constexpr int kColumns = Columns::kColumns;
constexpr bool kStoresEvery = dev::kStoresEvery<kKey>;

// Rows on their way.
extern __shared__ __align__(16) unsigned char shared[];

// Tokens first ... end - 1 of row `batch`.
struct Sequence {
  int n;
  int batch;
  int first, end;
};

// What a warp computes with.
struct Worker {
  const GdnConvParams& p;
  const Lane& lane;
  const TapsInMemory& taps;
  const Outputs& outputs;

  __device__ InputRow row(int batch, int token) const {
    InputRow row;
    row.load(p, lane, InputRow::at(p, lane, batch, token));
    return row;
  }

  // Where sequences go on from, and what is kept of them besides the last state.
  struct Kept {
    long long read_offset = 0;  // of the state of the step to start from
    dev::CheckpointRows checkpoints;
  };

  // What is in front of the sequence; its new state is stored, unless that is for each token.
  // `to`: where the run ends.
  __device__ void begin(Window& window, Columns& columns, const Sequence& sequence, int to,
                        const dev::ConvPlaces& places, const Kept& kept) const {
    const int tokens = sequence.end - sequence.first;
    const bool stores = kKey.states.store && !kStoresEvery && places.slots.store;
    if (dev::all_lanes(tokens == 0)) {
      if (stores && !has_long_window(kKey)) Columns::copy(p, lane, places);
      return;
    }
    if (dev::all_lanes(places.has_initial)) columns.load(p, lane, places, kept.read_offset);
    store_checkpoints(columns, sequence, sequence.first, to, places, kept);
    if (stores) {
      columns.store_next(p, lane, places, tokens,
                         [&](int t) { return row(sequence.batch, sequence.first + t); });
    }
    if (!dev::all_lanes(places.has_initial)) return;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) window.take(i, columns.get(j, i));
    }
  }

  // The states behind tokens from ... to - 1, and in front of the sequence's first, of those that
  // are kept as checkpoints.  A new state may lie where the old one is: it comes after these.
  __device__ void store_checkpoints(const Columns& columns, const Sequence& sequence, int from,
                                    int to, const dev::ConvPlaces& places, const Kept& kept) const {
    if constexpr (kKey.checkpoints == gdn::Checkpoints::kNone) return;
    if constexpr (dev::kAtOffsets<kKey>) {
      return store_checkpoints_at(columns, sequence, from - sequence.first, to - sequence.first);
    }
    constexpr bool kBefore = kKey.checkpoints == gdn::Checkpoints::kBefore;
    const auto place = [&](long long number) {
      return checkpoint(kept.checkpoints.first + number);
    };
    if (kBefore && dev::all_lanes(from == sequence.first)) {
      Columns::copy(p, lane, places, place(0));
    }
    const long long every = p.checkpoint_every;
    // Behind the last token none begins.
    const int last = min(to, sequence.end - (kBefore ? 1 : 0)) - sequence.first;
    long long number = (from - sequence.first) / every + 1;
    for (; number * every <= last; ++number) {
      columns.store_next(place(number - (kBefore ? 0 : 1)), lane, static_cast<int>(number * every),
                         [&](int t) { return row(sequence.batch, sequence.first + t); });
    }
  }

  __device__ dev::KeptState<kKey> checkpoint(long long row) const {
    return {p.checkpoints.data, p.checkpoints.stride, row};
  }

  // Those at offsets: of the states behind tokens from ... to - 1 of the sequence.
  __device__ void store_checkpoints_at(const Columns& columns, const Sequence& sequence, int from,
                                       int to) const {
#pragma unroll 1
    for (int i = 0; i < p.checkpoint_slots.count; ++i) {
      const dev::CheckpointAt at = dev::checkpoint_at<kKey>(p, sequence.n, i);
      if (at.tokens <= from || at.tokens > to) continue;
      columns.store_next(checkpoint(at.slot), lane, at.tokens,
                         [&](int t) { return row(sequence.batch, sequence.first + t); });
    }
  }

  // The window behind token `step`, whose row this is.
  __device__ void store_step(Columns& columns, const dev::Slots& slots, int step,
                             const InputRow& input) const {
    const dev::KeptStep kept = dev::kept_step<kKey>(slots, step);
    if (dev::all_lanes(kept.stores)) {
      const dev::KeptState<kKey> written{p.written, p.written_stride, kept.slot,
                                         step * p.steps.written_state};
      columns.store_next(written, lane, 1, [&](int) { return input; });
    }
    columns.push(input);
  }

  // Tokens from ... to - 1 of a sequence, the next ones of the queue.  Where they are not its
  // first, the queue begins with the kColumns in front of them.  `in_memory`: of the sequence.
  __device__ void take(const Taps& numbers, RowQueue& queue, const Sequence& sequence,
                       const dev::ConvPlacesInMemory& in_memory, int from, int to) const {
    const int tokens = sequence.end - sequence.first;
    // There is no step to store, and none whose slot could be looked at.
    if (kStoresEvery && dev::all_lanes(tokens == 0)) return;
    Window window(numbers);
    const bool is_first = dev::all_lanes(from == sequence.first);
    if (!is_first) queue.take(kColumns, [&](const InputRow& row) { window.pass(row); });
    Kept kept{.checkpoints = dev::checkpoint_rows<kKey>(p, sequence.n, tokens)};
    dev::ConvPlaces places = dev::places_of<kKey>(p, in_memory, tokens);
    if constexpr (kStoresEvery) {
      const dev::Places steps = dev::step_places_of<kKey>(p, sequence.n, tokens);
      places.slots = steps.slots;
      kept.read_offset = steps.start * p.steps.read_state;
    }
    if (!kept.checkpoints.fit && places.slots.kind == Kind::kCompute) {
      places.slots.kind = Kind::kInvalid;
    }
    auto* out = lane.output(sequence.batch, from);
    if (dev::all_lanes(places.slots.kind != Kind::kCompute)) {
      return queue.take(to - from, [&](const InputRow&) {
        outputs.store_instead(out, places.slots.kind);
        out += lane.token_stride;
      });
    }
    Columns columns;
    if (is_first) {
      begin(window, columns, sequence, to, places, kept);
    } else {
      store_checkpoints(columns, sequence, from, to, places, kept);
    }
    int step = 0;
    const auto finish = [&]<int kRows>(const InputRow(&rows)[kRows]) {
      float y[kRows][kCount];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) y[r][i] = window.take(i, rows[r].get(i));
      }
      outputs.store(out, y);
      out += kRows * lane.token_stride;
      if constexpr (kStoresEvery) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) store_step(columns, places.slots, step++, rows[r]);
      }
    };
    queue.take_together<rows_at_once(kKey)>(to - from, finish);
  }
};

// A run of one sequence.
__device__ void take_dense(const Worker& worker, int run) {
  const GdnConvParams& p = worker.p;
  const int n = run / p.runs_of_sequence, tokens = static_cast<int>(p.tokens);
  const int from = (run - n * p.runs_of_sequence) * p.run;
  const int to = from + min(p.run, tokens - from), before = from == 0 ? 0 : kColumns;
  RowQueue queue(p, worker.lane, n, from - before, to - from + before, shared);
  const dev::ConvPlacesInMemory in_memory = dev::load_places<kKey>(p, n);
  dev::allow_next_kernel();
  worker.take(Taps(worker.taps), queue, {.n = n, .batch = n, .first = 0, .end = tokens}, in_memory,
              from, to);
}

// A run of packed sequences.  Its rows are on their way while it is found where they belong, and so
// are the slots of a sequence that it likely has.
__device__ void take_packed(const Worker& worker, int run) {
  const GdnConvParams& p = worker.p;
  const int expected = p.by_sequence ? run : 0;
  const dev::ConvPlacesInMemory of_expected = dev::load_places<kKey>(p, expected);
  const int begin = run * p.run;
  int queued = max(begin - kColumns, 0), queued_end = static_cast<int>(p.tokens);
  dev::SequenceTokens own{};
  if (p.by_sequence) {
    own = dev::tokens_of_sequence<kKey>(p, run);
    queued = own.first;
    queued_end = own.first + own.count;
  }
  RowQueue queue(p, worker.lane, 0, queued, queued_end - queued, shared);
  const dev::PackedRun found =
      p.by_sequence ? dev::run_of_sequence<kKey>(p, run, own) : dev::packed_run<kKey>(p, run);
  dev::allow_next_kernel();
  if (found.is_malformed) {
    const int end = begin + min(p.run, static_cast<int>(p.tokens) - begin);
    for (int token = begin; token < end; ++token) {
      worker.outputs.store_instead(worker.lane.output(0, token), Kind::kInvalid);
    }
    return;
  }
  if (dev::all_lanes(found.begin.token >= found.end.token && !found.is_last)) return;
  const int first = max(found.begin.token, dev::bound<kKey>(p, 0));
  const int end = min(found.end.token, dev::bound<kKey>(p, p.sequences));
  queue.leave(queued_end - end);
  const bool is_inside = first < end && first > dev::bound<kKey>(p, found.begin.sequence);
  queue.take(min(first, end) - (is_inside ? kColumns : 0) - queued, [](const InputRow&) {});
  const Taps taps(worker.taps);
  for (int n = found.begin.sequence; n < found.sequences; ++n) {
    const Sequence sequence{
        .n = n, .batch = 0, .first = dev::bound<kKey>(p, n), .end = dev::bound<kKey>(p, n + 1)};
    if (dev::all_lanes(sequence.first >= found.end.token && !found.is_last)) break;
    worker.take(taps, queue, sequence, n == expected ? of_expected : dev::load_places<kKey>(p, n),
                max(sequence.first, first), min(sequence.end, end));
  }
}

// One token of each of some sequences: all that they need is on its way before the first is
// computed.
__device__ void take_steps(const Worker& worker, int run) {
  constexpr int kTogether = kKey.together;
  const GdnConvParams& p = worker.p;
  const int first = run * kTogether, count = min(kTogether, p.sequences - first);
  dev::ConvPlacesInMemory in_memory[kTogether];
  dev::ConvPlaces places[kTogether];
  InputRow rows[kTogether];
  Columns columns[kTogether];
#pragma unroll
  for (int n = 0; n < kTogether; ++n) {
    if (n < count) in_memory[n] = dev::load_places<kKey>(p, first + n);
  }
#pragma unroll
  for (int n = 0; n < kTogether; ++n) {
    if (n < count) rows[n] = worker.row(first + n, 0);
  }
#pragma unroll
  for (int n = 0; n < kTogether; ++n) {
    if (n < count) places[n] = dev::places_of<kKey>(p, in_memory[n], 1);
    const bool reads = n < count && places[n].slots.kind == Kind::kCompute;
    if (dev::all_lanes(reads && places[n].has_initial)) {
      columns[n].load(p, worker.lane, places[n]);
    }
  }
  dev::allow_next_kernel();
  const Taps taps(worker.taps);
#pragma unroll
  for (int n = 0; n < kTogether; ++n) {
    if (n >= count) break;
    auto* const out = worker.lane.output(first + n, 0);
    if (dev::all_lanes(places[n].slots.kind != Kind::kCompute)) {
      worker.outputs.store_instead(out, places[n].slots.kind);
      continue;
    }
    float y[1][kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      y[0][i] = dev::step_sum(taps, i, places[n].has_initial, columns[n], rows[n]);
    }
    worker.outputs.store(out, y);
    if (kKey.states.store && dev::all_lanes(places[n].slots.store)) {
      columns[n].store_next(p, worker.lane, places[n], 1, [&](int) { return rows[n]; });
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(threads(kKey), min_blocks(kKey))
    gdn_conv(const __grid_constant__ GdnConvParams p) {
  const int warp = dev::uniform(blockIdx.x * kKey.warps + threadIdx.x / 32);
  const int run = blockIdx.y + blockIdx.z * gridDim.y;
  if (run >= p.runs) return;
  dev::wait_for_previous_kernel();
  if (warp >= p.channel_warps) {
    if (has_gates(kKey.inputs)) dev::make_gates<kKey>(p, run, warp - p.channel_warps);
    return;
  }
  const Lane lane(p, warp);
  const TapsInMemory taps(p, lane);
  const Outputs outputs(lane);
  const Worker worker{p, lane, taps, outputs};
  if constexpr (kKey.varlen) {
    take_packed(worker, run);
  } else if constexpr (has_steps(kKey)) {
    if (p.tokens == 1) return take_steps(worker, run);
    take_dense(worker, run);
  } else {
    take_dense(worker, run);
  }
}
