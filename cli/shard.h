// Which part of the work is this process's, where several machines share one command line.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/status.h"

namespace cubinery {

// Part `index` of `count`, from 1.
struct Shard {
  std::size_t index = 1;
  std::size_t count = 1;
  std::string launcher{};  // that says so, and how: "torchrun (RANK=1, WORLD_SIZE=8)"
};

// The value of an environment variable; empty: it is not set.
using Variables = std::function<std::string(const char* name)>;

// "2/8"; "auto": as the launcher of this process says in the environment; "auto/8": likewise, of
// 8.  Of several launchers the innermost counts: torchrun, Open MPI's mpirun, Slurm (a step of
// srun, a job of an array, or both), Kubernetes' indexed jobs, which do not say of how many.
//
// kInvalidArgument: anything else; no launcher says it, or says what cannot be.
Result<Shard> parse_shard(std::string_view text, const Variables& variables);

// "2/8".
std::string name_of(const Shard& shard);
// "Part 2 of 8, says torchrun (RANK=1, WORLD_SIZE=8)\n"; empty of a whole that nobody divided.
std::string to_text(const Shard& shard);

// Those of `all` at these places, in their order.
template <class Each>
std::vector<Each> taken(std::vector<Each> all, std::vector<std::size_t> places) {
  std::sort(places.begin(), places.end());
  std::vector<Each> some;
  some.reserve(places.size());
  for (const std::size_t place : places) some.push_back(std::move(all[place]));
  return some;
}

// --shard, of every command that has it.
class ShardOption {
 public:
  // Requires: this object outlives the parse and does not move.  `of`: what is divided.
  void add_to(CLI::App& app, std::string_view of);
  // With the environment of this process.
  Result<Shard> resolve() const;

 private:
  std::string text_ = "1/1";
};

}  // namespace cubinery
