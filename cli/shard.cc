#include "cli/shard.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/jit/options_text.h"

namespace cubinery {
namespace {

using Number = std::uint32_t;  // products of two fit a size_t

// A number of equal things among which this process is one.
struct Level {
  const char* index;
  const char* count;  // null: the launcher does not say
  const char* first;  // the least index; null: 0
};

struct Launcher {
  const char* name;
  std::vector<Level> levels;  // the outermost first
};

const std::vector<Launcher>& launchers() {
  // RANK and WORLD_SIZE: https://docs.pytorch.org/docs/stable/elastic/run.html
  // OMPI_...: https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html
  // SLURM_...: https://slurm.schedmd.com/srun.html and job_array.html; a batch script itself has
  // SLURM_PROCID and SLURM_NTASKS, too, and is one process: steps alone have SLURM_STEP_NUM_TASKS.
  // JOB_COMPLETION_INDEX: https://kubernetes.io/docs/concepts/workloads/controllers/job
  static const std::vector<Launcher> all = {
      {"torchrun", {{"RANK", "WORLD_SIZE", nullptr}}},
      {"Open MPI", {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr}}},
      {"Slurm",
       {{"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr}}},
      {"Kubernetes", {{"JOB_COMPLETION_INDEX", nullptr, nullptr}}},
  };
  return all;
}

Status refused(std::string_view text, std::string_view why) {
  return Status(Code::kInvalidArgument, fmt::format("--shard {}: {}", text, why));
}

std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  return parse_integer(text, &number) ? std::optional(number) : std::nullopt;
}

// What one launcher says.
class Said {
 public:
  Said(std::string_view text, const Launcher& launcher, const Variables& variables)
      : text_(text), name_(launcher.name), variables_(variables) {
    for (const Level& level : launcher.levels) take(level);
  }

  bool is_there() const { return !variables_text_.empty(); }
  // `given`: of how many, on the command line.
  Result<Shard> shard(std::optional<Number> given) const {
    if (!error_.ok()) return error_.clone();
    if (!given && !says_count_) {
      return refused(text_, fmt::format("{} does not say of how many parts; accepted: auto/n, with "
                                        "the job's completions as n",
                                        by()));
    }
    const std::size_t count = says_count_ ? count_ : *given;
    if (given && *given != count) {
      return refused(
          text_, fmt::format("{} says of {} parts; accepted: auto or auto/{}", by(), count, count));
    }
    if (index_ >= count) {
      return refused(text_, fmt::format("{} is no part of {}", by(), count));
    }
    return Shard{.index = index_ + 1, .count = count, .launcher = by()};
  }

 private:
  std::string by() const { return fmt::format("{} ({})", name_, variables_text_); }

  void take(const Level& level) {
    // A level is there when all of its variables are.
    for (const char* name : {level.index, level.count, level.first}) {
      if (name != nullptr && variables_(name).empty()) return;
    }
    const Number index = read(level.index);
    const Number count = level.count == nullptr ? 1 : read(level.count);
    const Number first = level.first == nullptr ? 0 : read(level.first);
    if (!error_.ok()) return;
    says_count_ = level.count != nullptr;
    if (says_count_ && (index < first || index - first >= count)) {
      error_ = refused(
          text_, fmt::format("{} is none of {} indices from {} on; accepted: launchers that count "
                             "without gaps",
                             by(), count, first));
      return;
    }
    index_ = index_ * count + index - first;
    count_ *= count;
  }

  Number read(const char* name) {
    const std::string value = variables_(name);
    variables_text_ += fmt::format("{}{}={}", variables_text_.empty() ? "" : ", ", name, value);
    const std::optional<Number> number = number_of(value);
    if (!number && error_.ok()) {
      error_ = refused(text_, fmt::format("{}={} is no number", name, value));
    }
    return number.value_or(0);
  }

  std::string_view text_;
  std::string_view name_;
  const Variables& variables_;
  std::string variables_text_;
  std::size_t index_ = 0, count_ = 1;
  bool says_count_ = false;
  Status error_;
};

Result<Shard> automatic(std::string_view text, std::optional<Number> given,
                        const Variables& variables) {
  for (const Launcher& launcher : launchers()) {
    const Said said(text, launcher, variables);
    if (said.is_there()) return said.shard(given);
  }
  return refused(text,
                 "no launcher says which part this is; accepted: processes of torchrun, of Open "
                 "MPI's mpirun, of srun, of sbatch --array and of a Kubernetes job with "
                 "completionMode Indexed, or i/n");
}

}  // namespace

Result<Shard> parse_shard(std::string_view text, const Variables& variables) {
  const std::string_view first = text.substr(0, text.find('/'));
  const bool has_count = first.size() < text.size();
  const std::optional<Number> count =
      has_count ? number_of(text.substr(first.size() + 1)) : std::nullopt;
  if (first == "auto" && (!has_count || count.value_or(0) > 0)) {
    return automatic(text, count, variables);
  }
  const std::optional<Number> index = number_of(first);
  if (index && count && *index >= 1 && *index <= *count) {
    return Shard{.index = *index, .count = *count};
  }
  return Status(Code::kInvalidArgument,
                fmt::format("--shard {}; accepted: i/n with 1 <= i <= n, such as 2/8, auto, or "
                            "auto/n",
                            text));
}

std::string name_of(const Shard& shard) { return fmt::format("{}/{}", shard.index, shard.count); }

std::string to_text(const Shard& shard) {
  if (shard.launcher.empty() && shard.count == 1) return "";
  return fmt::format("Part {} of {}{}{}\n", shard.index, shard.count,
                     shard.launcher.empty() ? "" : ", says ", shard.launcher);
}

void ShardOption::add_to(CLI::App& app, std::string_view of) {
  app.add_option("--shard", text_,
                 fmt::format("Only part i of n of {}, for n machines with one command line; auto: "
                             "as torchrun, Open MPI's mpirun, srun or sbatch --array says; auto/n: "
                             "of n, as an indexed job of Kubernetes says",
                             of))
      ->type_name("i/n");
}

Result<Shard> ShardOption::resolve() const { return parse_shard(text_, environment_variable); }

}  // namespace cubinery
