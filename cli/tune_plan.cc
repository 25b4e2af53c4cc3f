#include "cli/tune_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "cli/print.h"
#include "cli/result_lines.h"
#include "codegen/arch.h"
#include "cubinery/context.h"
#include "harness/shapes.h"
#include "results/shape.h"

namespace cubinery {
namespace {

Shape features_of(const Problem& problem, const Shape& shape) {
  return std::visit([&](const auto& one) { return gdn_features(one, shape); }, problem);
}

// How far the sizes are from those that name their bucket, in powers of two.
double off_centre(const Shape& features) {
  double off = 0;
  for (const ShapeSize& size : features) {
    const auto centre = static_cast<double>(size_in_bucket(size));
    off += std::abs(std::log2(static_cast<double>(size.value) / centre));
  }
  return off;
}

// The shape with the problem's head counts: measurements outlive the problem that they were made
// for.
Shape with_heads(Shape shape, const Problem& problem) {
  std::visit(
      [&](const auto& one) {
        shape.push_back({"q_heads", one.heads.q});
        shape.push_back({"k_heads", one.heads.k});
        shape.push_back({"v_heads", one.heads.v});
      },
      problem);
  return shape;
}

// A shape on its way into the plan of its space.
struct ShapeCandidate {
  PlannedShape planned;
  double off_centre;
};

// Spaces while they are gathered.
class Gatherer {
 public:
  Gatherer(const Target& target, const std::vector<std::string>& paths)
      : target_(target), paths_(paths) {}

  // Shapes without head counts: those of the problem count.
  Status add(const Request& request, const std::vector<Shape>& shapes) {
    const Result<TuningSpace> space = tuning_space(request.asked.problem, target_, paths_);
    if (!space) return in_request(request, space.error());
    const std::size_t at = index_of(*space, request.asked.problem);
    ++spaces_[at].problems;
    for (const Shape& shape : shapes) add_shape(request, shape, &candidates_[at]);
    return {};
  }

  std::vector<TuneSpace> take() {
    for (std::size_t i = 0; i < spaces_.size(); ++i) {
      for (ShapeCandidate& candidate : candidates_[i]) {
        spaces_[i].buckets.push_back(std::move(candidate.planned));
      }
    }
    return std::move(spaces_);
  }

 private:
  static Status in_request(const Request& request, const Status& error) {
    return Status(error.code(), fmt::format("{}: {}", request.origin, error.message()));
  }

  std::size_t index_of(const TuningSpace& space, const Problem& problem) {
    const auto [place, is_new] = index_.try_emplace({space.op, space.problem}, spaces_.size());
    if (is_new) {
      spaces_.push_back({.op = space.op,
                         .text = space.problem,
                         .configurations = space.configurations.size(),
                         .problem = problem});
      candidates_.emplace_back();
    }
    return place->second;
  }

  static void add_shape(const Request& request, const Shape& shape,
                        std::vector<ShapeCandidate>* candidates) {
    const Shape features = features_of(request.asked.problem, shape);
    ShapeCandidate made{
        {with_heads(shape, request.asked.problem), bucket_of(features), request.origin},
        off_centre(features)};
    const auto same = std::find_if(candidates->begin(), candidates->end(), [&](const auto& other) {
      return other.planned.bucket == made.planned.bucket;
    });
    if (same == candidates->end()) {
      candidates->push_back(std::move(made));
      return;
    }
    made.planned.shapes = ++same->planned.shapes;
    if (made.off_centre < same->off_centre) *same = std::move(made);
  }

  Target target_;
  const std::vector<std::string>& paths_;
  std::map<std::pair<std::string, std::string>, std::size_t> index_;  // (op, problem) -> place
  std::vector<TuneSpace> spaces_;
  std::vector<std::vector<ShapeCandidate>> candidates_;  // of each space, one for each bucket
};

Result<Target> target_named(std::string_view arch) {
  if (const std::optional<Arch> known = parse_arch(arch)) return typical_target(*known);
  return unknown_name("--arch", arch, known_architectures());
}

Result<std::vector<Shape>> shapes_in(const Request& request, const ShapeGrid& grid) {
  std::vector<Shape> shapes = shapes_of(request.asked.problem, grid);
  if (!shapes.empty()) return shapes;
  return Status(Code::kInvalidArgument,
                fmt::format("{}: {} can have none of these shapes: no sequence without a token, "
                            "and equal lengths where sequences are not packed",
                            request.origin, operator_of(request.asked.problem)));
}

bool is_of_heads(const ShapeSize& size) { return size.name.ends_with("_heads"); }

}  // namespace

std::size_t TuneSpace::shapes() const {
  std::size_t count = 0;
  for (const PlannedShape& bucket : buckets) count += bucket.shapes;
  return count;
}

Result<std::vector<TuneSpace>> plan_tuning(const std::vector<Request>& requests,
                                           const ShapeGrid& grid, std::string_view arch,
                                           const std::vector<std::string>& paths,
                                           LeftOuts* left_out) {
  const Result<Target> target = target_named(arch);
  if (!target) return target.error().clone();
  const auto is_left_out = [&](const Request& request) {
    return std::any_of(requests.begin(), requests.end(), [&](const Request& other) {
      return stands_in(other, request) && tuning_space(other.asked.problem, *target, paths);
    });
  };
  Gatherer gatherer(*target, paths);
  for (const Request& request : requests) {
    if (!request.arch.empty() && request.arch != arch) continue;
    const Result<std::vector<Shape>> shapes = shapes_in(request, grid);
    if (!shapes) return shapes.error().clone();
    Status added = gatherer.add(request, *shapes);
    if (added.code() == Code::kUnsupported && is_left_out(request)) {
      if (left_out != nullptr) left_out->add_replaced(request, added, arch);
      continue;
    }
    CUBINERY_RETURN_IF_ERROR(std::move(added));
  }
  return gatherer.take();
}

std::vector<TuneSpace> select_shard(std::vector<TuneSpace> spaces, const Shard& shard) {
  struct Piece {
    std::size_t measurements;
    std::string name;
    std::size_t place;
  };
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    const TuneSpace& space = spaces[i];
    pieces.push_back({space.measurements(), space.op + " " + space.text, i});
  }
  // The largest first, each to whoever has least.
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(b.measurements, a.name) < std::tie(a.measurements, b.name);
  });
  std::vector<std::size_t> loads(std::min(shard.count, spaces.size()));
  std::vector<std::size_t> mine;
  for (const Piece& piece : pieces) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += piece.measurements;
    if (static_cast<std::size_t>(least - loads.begin()) == shard.index - 1) {
      mine.push_back(piece.place);
    }
  }
  return taken(std::move(spaces), std::move(mine));
}

Result<std::vector<TuneSpace>> plan_tuning_again(const std::vector<std::string>& files,
                                                 std::string_view arch,
                                                 const std::vector<std::string>& paths) {
  const Result<Target> target = target_named(arch);
  if (!target) return target.error().clone();
  Gatherer gatherer(*target, paths);
  for (const std::string& file : files) {
    const Result<std::vector<ResultLine>> lines = result_lines(file);
    if (!lines) return lines.error().clone();
    if (lines->empty()) return Status(Code::kInvalidArgument, file + ": no result of a tuning");
    for (const ResultLine& line : *lines) {
      Request request;
      request.origin = fmt::format("{}:{}", file, line.number);
      const auto refused = [&](const Status& why) {
        return Status(why.code(), fmt::format("{}: {}", request.origin, why.message()));
      };
      if (!line.result) return refused(line.result.error());
      const Setting& setting = line.result->setting;
      const Result<Problem> problem = problem_of(setting);
      if (!problem) return refused(problem.error());
      request.asked.problem = *problem;
      Shape shape = setting.shape;
      std::erase_if(shape, is_of_heads);
      CUBINERY_RETURN_IF_ERROR(gatherer.add(request, {shape}));
    }
  }
  return gatherer.take();
}

}  // namespace cubinery
