// A block that goes through many units, one after another, with its warps at work on several at a
// time: while some compute one unit's chunks, others have the next one's chunks on their way.  Part
// of gdn_prefill_scan.cu, for keys with producers.
//
// One warp plans: it finds each unit, and writes down what the others need, in one of kUnits
// records, which take turns.  Two barriers for each record say that it is written, and that all
// have read it.  Units that have nothing to compute end there, so every record has chunks.
//
// The stages go on from unit to unit.
#pragma once

#include "gdn_prefill_scan/by_wgmma.cuh"
#include "gdn_prefill_scan/handover.cuh"

namespace {

// What the warps need of a unit.
struct Work : Handover<kKey.segments> {
  Unit unit;  // without chunks: there are no more units
  Plan plan;
  const char* from;            // the state that it starts from; null: zeros, or the identity
  char* to;                    // where its last state goes; null: nowhere
  long long checkpoint;        // its first one's row
  int offset_from, offset_to;  // as dev::CheckpointRows
};
static_assert(sizeof(Work) == work_bytes(kKey) || producers(kKey) == 0);
constexpr int kWorkBytes = work_bytes(kKey);

constexpr int kWorkPlace = shared_bytes(kKey) - kept_bytes(kKey) + step_bytes(kKey);
__device__ unsigned planned_at(int place) {
  return dev::shared_address(shared) + kWorkPlace + kUnits * kWorkBytes + place * 16;
}
__device__ unsigned done_at(int place) { return planned_at(place) + 8; }
// A template, so that keys without producers do not compile it.
template <int kProducers = producers(kKey)>
__device__ Work& work_at(int place) {
  return *reinterpret_cast<Work*>(shared + kWorkPlace + place * kWorkBytes);
}
__device__ short* order_of_sequences() {
  return reinterpret_cast<short*>(shared + kWorkPlace + kUnits * (kWorkBytes + 16));
}
// With segments, in its place: that the copies of a unit's last chunk have started; that nothing is
// left to be copied, at the block's end; zeros.
__device__ unsigned brought_at() { return planned_at(kUnits); }
__device__ unsigned emptied_at() { return brought_at() + 8; }
__device__ unsigned zeros_at() { return brought_at() + 16; }
// The same place, or for a transition's values zeros.  One register has both.
class PlaceOfValuesOrZeros : public KeptPlaceOfValues {
 public:
  __device__ void set(Role role) {
    first_ &= ~kIsZeros;
    if (role == Role::kTransition) first_ |= kIsZeros;
  }
  __device__ unsigned operator()(unsigned stage, int i) const {
    return first_ >= kIsZeros ? zeros_at() : KeptPlaceOfValues::operator()(stage, i);
  }

 private:
  static constexpr unsigned kIsZeros = 1u << 31;
};
template <bool kSegments>
struct PlaceOf {
  using Values = KeptPlaceOfValues;
};
template <>
struct PlaceOf<true> {
  using Values = PlaceOfValuesOrZeros;
};
// Who comes when a record has been read: the one that copies, and all other warps but the one that
// plans.
constexpr int kReaders = 1 + (kKey.warps + producers(kKey) + kGateWarps) * 32;

// The record whose turn it is, for one of those that read them.
class WorkTurn {
 public:
  __device__ Work& work() const { return work_at(place()); }
  // Waits until it is written.  Whether it is a unit.
  __device__ bool is_there() const {
    dev::wait_for_phase(planned_at(place()), parity());
    return work().unit.span.end > 0;
  }
  // Leaves it to the warp that plans.
  __device__ void leave() {
    // With segments the run has no register for the address, which the compiler would keep.
    if constexpr (kKey.segments) asm volatile("" : "+r"(number_));
    dev::come_to(done_at(place()));
    pass();
  }

  __device__ unsigned number() const { return number_; }
  __device__ unsigned place() const { return number_ % kUnits; }
  __device__ unsigned parity() const { return number_ / kUnits % 2; }
  __device__ void pass() { ++number_; }
  // Whether every record has had its turn.
  __device__ bool is_round() const { return number_ >= kUnits; }

 private:
  unsigned number_ = 0;
};

// The unit's first chunk, how many it has, and its tokens from the first one on.
__device__ int first_chunk(const Unit& unit) { return kKey.segments ? unit.span.first : 0; }
__device__ int chunks_in(const Unit& unit) { return unit.span.end - first_chunk(unit); }
__device__ int tokens_in(const Unit& unit) {
  const int tokens = static_cast<int>(unit.sequence.tokens);
  if constexpr (!kKey.segments) return tokens;
  return min(tokens, unit.span.end * kChunk) - first_chunk(unit) * kChunk;
}

__device__ unsigned units_of(const GdnPrefillScanParams& p) {
  return static_cast<unsigned>(p.sequences) * p.heads * kSlices;
}
// Unit `i` of this block, among all: there and back over the blocks, since long sequences come
// first.
__device__ unsigned unit_number(unsigned i) {
  return i * gridDim.x + (i % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

// The sequence, head and columns of a unit.
__device__ Unit unit_of(const GdnPrefillScanParams& p, unsigned number) {
  Unit unit{};
  const unsigned rank = number / (kSlices * p.heads);
  unit.n = rank;
  unit.h = static_cast<int>(number / kSlices % p.heads);
  unit.first_column = static_cast<int>(number % kSlices) * kColumns;
  if constexpr (kKey.varlen) {
    if (p.sequences <= kMostRanked) unit.n = order_of_sequences()[rank];
    unit.sequence = dev::packed_sequence<kChunk, kKey.cu_seqlens_dtype>(unit.n, p.cu_seqlens);
  } else {
    unit.sequence = dev::dense_sequence<kChunk>(unit.n, p.tokens);
  }
  unit.span = {.first = 0, .begin = 0, .end = chunks_of(unit.sequence)};
  return unit;
}

// Where cu_seqlens is malformed each unit fills its share of all tokens.
__device__ void fill_shares(const GdnPrefillScanParams& p) {
  if (threadIdx.x >= 32) return;
  for (unsigned i = 0; unit_number(i) < units_of(p); ++i) {
    const unsigned number = unit_number(i);
    const Unit unit{.h = static_cast<int>(number / kSlices % p.heads),
                    .first_column = static_cast<int>(number % kSlices) * kColumns};
    const long long rank = number / (kSlices * p.heads);
    fill_output(p, unit, p.tokens * rank / p.sequences, p.tokens * (rank + 1) / p.sequences,
                dev::nan());
  }
}

__device__ bool has_initial(const GdnPrefillScanParams& p, const Unit& unit) {
  if (!kKey.states.has_initial) return false;
  return p.has_initial.data == nullptr || dev::load_index<DType::kBool>(p.has_initial, unit.n);
}
// The state that the unit's sequence starts from; null: zeros.
__device__ const char* initial_of(const GdnPrefillScanParams& p, const Unit& unit, long long slot) {
  if (!has_initial(p, unit)) return nullptr;
  return reinterpret_cast<const char*>(
      dev::matrix_at<kKey.states.dtype>(p.states.read, slot, unit.h));
}

// Of a sequence without tokens, this unit's columns.
__device__ void copy_state(const Unit& unit, const char* from, char* to) {
  if (to == nullptr || from == to) return;
  using Element = dev::Storage<kKey.states.dtype>;
  constexpr bool kRowsAreV = kKey.states.layout == gdn::StateLayout::kVK;
  for (int i = threadIdx.x % 32; i < kKey.key_dim * kColumns; i += 32) {
    const int at = kRowsAreV ? unit.first_column * kKey.key_dim + i
                             : i / kColumns * kKey.value_dim + unit.first_column + i % kColumns;
    reinterpret_cast<Element*>(to)[at] =
        from == nullptr ? Element{} : reinterpret_cast<const Element*>(from)[at];
  }
}

// The records, for the warp that plans.
class Records {
 public:
  // Waits until all have read what was in the next one before.  Returns its place.
  __device__ unsigned next() const {
    const unsigned place = turn_.place();
    if (turn_.is_round()) dev::wait_for_phase(done_at(place), turn_.parity() ^ 1);
    return place;
  }
  // The same, and goes on to the one behind it.
  __device__ unsigned take() {
    const unsigned place = next();
    turn_.pass();
    return place;
  }

  __device__ unsigned taken() const { return turn_.number(); }

 private:
  WorkTurn turn_;
};

// For one warp.  Lanes find a unit each, kAtOnce at a time: what leads to one are loads that wait
// for each other.
template <int kProducers = producers(kKey)>
class Planner {
 public:
  __device__ explicit Planner(const GdnPrefillScanParams& p) : p_(p) {}

  __device__ void run() {
    for (unsigned i = 0; unit_number(i) < units_of(p_); i += kAtOnce) plan(i);
    // No more units.
    const unsigned place = records_.take();
    if (threadIdx.x % 32 != 0) return;
    work_at(place).unit.span.end = 0;
    dev::come_to(planned_at(place));
  }

 private:
  static constexpr unsigned kAtOnce = 4;

  // The block's units from `first` on.
  __device__ void plan(unsigned first) {
    const unsigned lane = threadIdx.x % 32;
    const bool is_mine = lane < kAtOnce && unit_number(first + lane) < units_of(p_);
    const Unit unit = unit_of(p_, unit_number(first + (is_mine ? lane : 0)));
    const dev::Slots slots = dev::slots_of<kKey>(p_.states, unit.n);
    const dev::CheckpointRows checkpoints =
        dev::checkpoint_rows<kKey>(p_, unit.n, unit.sequence.tokens);
    const bool computes = slots.kind == dev::Slots::Kind::kCompute && checkpoints.fit;
    const bool is_filled = !computes && slots.kind != dev::Slots::Kind::kSkip;
    const bool is_empty = unit.span.end == 0;
    const char* const from = initial_of(p_, unit, slots.read);
    char* const to = destination_of_sequence(p_, unit, slots).state;
    for_each_lane(is_mine && computes && !is_empty, [&](unsigned i) {
      // Each is shown before the next one is waited for: the warp that copies goes on only then.
      const unsigned place = records_.take();
      if (lane != i) return;
      Work& work = work_at(place);
      work.unit = unit;
      work.plan = plan_of(p_, unit);
      work.from = from;
      work.to = to;
      work.checkpoint = checkpoints.first;
      work.offset_from = checkpoints.from;
      work.offset_to = checkpoints.to;
      dev::come_to(planned_at(place));
    });
    // The others, which are few.
    const float fill = slots.kind == dev::Slots::Kind::kZero ? 0.0f : dev::nan();
    for_each_lane(is_mine && is_filled, [&](unsigned i) {
      const Unit filled = unit_of(p_, unit_number(first + i));
      fill_span(p_, filled, __shfl_sync(0xffffffffu, fill, i));
    });
    for_each_lane(is_mine && computes && is_empty, [&](unsigned i) {
      const Unit empty = unit_of(p_, unit_number(first + i));
      copy_state(empty, pointer_of_lane(from, i), pointer_of_lane(to, i));
    });
  }

  // Calls f(lane) for the lanes that have one, with the whole warp.
  template <class Function>
  static __device__ void for_each_lane(bool mine, Function f) {
    for (unsigned left = __ballot_sync(0xffffffffu, mine); left != 0; left &= left - 1) {
      f(static_cast<unsigned>(__ffs(left)) - 1);
      __syncwarp();
    }
  }
  template <class T>
  static __device__ T* pointer_of_lane(T* x, unsigned lane) {
    return reinterpret_cast<T*>(
        __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(x), lane));
  }

  const GdnPrefillScanParams& p_;
  Records records_;
};

// TmaCopier for all units.  For one thread.
template <int kProducers = producers(kKey)>
class UnitsCopier {
 public:
  __device__ explicit UnitsCopier(const GdnPrefillScanParams& p) : p_(p) {}

  __device__ void run() {
    int free = Turn::kPlaces;
    bring(&free);
    Turn turn;
    for (WorkTurn leaving; leaving.is_there(); leaving.leave()) {
      const Work& work = leaving.work();
      const TmaCopier copier(work.unit, work.plan);
      for (int chunk = first_chunk(work.unit); chunk < work.unit.span.end; ++chunk, turn.pass()) {
        dev::wait_for_phase(left_at(turn.stage), turn.parity);
        if (kWrites && has_outputs(work.unit, chunk) && !is_tail(work.unit, chunk)) {
          copier.take_away(p_, chunk, turn.stage);
        }
        ++free;
        bring(&free);
      }
      --units_ahead_;
    }
    // Shared memory stays until all outputs have been read from it.
    if (kWrites) dev::wait_for_boxes_read();
    if constexpr (kKey.segments) dev::come_to(emptied_at());
  }

 private:
  static __device__ bool has_outputs(const Unit& unit, int chunk) {
    return !kKey.segments || chunk >= unit.span.begin;
  }

  // Brings chunks to the stages that are free, as far as there are records of their units.
  __device__ void bring(int* free) {
    while (*free > 0 && units_ahead_ < kUnits && coming_.is_there()) {
      const Work& work = coming_.work();
      TmaCopier(work.unit, work.plan).bring(p_, first_chunk(work.unit) + chunk_, to_.stage);
      to_.pass();
      --*free;
      if (++chunk_ < chunks_in(work.unit)) continue;
      chunk_ = 0;
      coming_.pass();
      if constexpr (kKey.segments) dev::come_to(brought_at());
      ++units_ahead_;
    }
  }

  const GdnPrefillScanParams& p_;
  WorkTurn coming_;      // the unit of the next chunk to bring
  int chunk_ = 0;        // which that is, of the unit's
  Turn to_;              // where it goes
  int units_ahead_ = 0;  // units in front of it, from the one whose chunks are left on
};

// What checkpoints at offsets need, where the chunks' loop looks for it.
__device__ void keep_offsets(const Work& work) {
  // Orders the reading for the unit before in front of it.
  sync_computing();
  if (threadIdx.x == 0) {
    volatile KeptOffsets& offsets = kept_offsets();
    offsets.from = work.offset_from;
    offsets.to = work.offset_to;
    offsets.n = static_cast<int>(work.unit.n);
    offsets.h = work.unit.h;
    offsets.first_column = work.unit.first_column;
  }
  // Orders it before its reading.
  sync_computing();
}

// For the threads that compute.
template <int kProducers = producers(kKey), bool kSegments = kKey.segments>
__device__ void run_units(const GdnPrefillScanParams& p) {
  Turn turn;
  typename PlaceOf<kSegments>::Values place;
  WorkTurn at;
  for (; at.is_there(); at.leave()) {
    const Work& work = at.work();
    const Unit unit = uniform(work.unit);
    if constexpr (dev::kAtOffsets<kKey>) keep_offsets(work);
    State state{};
    const auto plan_at = [&]() -> const Plan& { return work.plan; };
    if constexpr (kSegments) {
      start_unit(state, work, unit);
      place.set(unit.role);
      const KeptPlaceOfValues& outputs_place = place;
      run_chunks_by_wgmma<false>(state, p, unit, unit.span.first, unit.span.begin, &turn, 0,
                                 plan_at, place);
      run_chunks_by_wgmma<true>(state, p, unit, unit.span.begin, unit.span.end, &turn,
                                work.checkpoint, plan_at, outputs_place);
      end_unit(state, work, unit);
    } else {
      load_state_from(state, work.from, unit);
      run_chunks_by_wgmma<true>(state, p, unit, 0, unit.span.end, &turn, work.checkpoint, plan_at,
                                place);
      if (work.to != nullptr) store_sequence_state(state, {.state = work.to}, unit);
    }
  }
  if constexpr (kSegments) carry_at_end(p, at.work(), emptied_at());
}

}  // namespace
