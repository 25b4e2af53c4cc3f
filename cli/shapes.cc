#include "cli/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <type_traits>
#include <variant>

#include "cli/print.h"
#include "cli/problem_options.h"

namespace cubinery {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 30;

std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t largest) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 1 || value > largest) return std::nullopt;
  return value;
}

Status read_sizes(std::string_view option, std::string_view text,
                  std::vector<std::int64_t>* sizes) {
  std::optional<std::vector<std::int64_t>> read = parse_sizes(text);
  if (!read) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} {}; accepted: numbers from 1 to {} and ranges of them, such as "
                              "1,3,8:64",
                              option, text, kLargest));
  }
  *sizes = *std::move(read);
  return {};
}

// A size that has an option, and the operators whose shapes have it.
struct SizeOption {
  SizeInfo size;
  std::vector<std::string> operators;
};

// In the order of operator_names(), each once.
const std::vector<SizeOption>& size_options() {
  static const std::vector<SizeOption> kOptions = [] {
    std::vector<SizeOption> options;
    const auto add = [&](const std::string& op, const SizeInfo& size) {
      const auto same = [&](const SizeOption& known) { return known.size.name == size.name; };
      auto known = std::find_if(options.begin(), options.end(), same);
      if (known == options.end()) known = options.insert(known, {size, {}});
      known->operators.push_back(op);
    };
    for (const std::string& op : operator_names()) {
      std::visit(
          [&](const auto& problem) {
            using Harness = HarnessOf<std::decay_t<decltype(problem)>>;
            for (const SizeInfo& size : grid_sizes<Harness>()) add(op, size);
          },
          default_problem(op));
    }
    return options;
  }();
  return kOptions;
}

}  // namespace

std::optional<std::vector<std::int64_t>> parse_sizes(std::string_view text) {
  std::set<std::int64_t> sizes;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    more = comma != text.npos;
    if (more) text.remove_prefix(comma + 1);
    const std::size_t colon = item.find(':');
    const std::optional<std::int64_t> first = parse_number(item.substr(0, colon), kLargest);
    const std::optional<std::int64_t> last =
        colon == item.npos ? first : parse_number(item.substr(colon + 1), kLargest);
    if (!first || !last || *first > *last) return std::nullopt;
    for (std::int64_t size = *first; size <= *last; size *= 2) sizes.insert(size);
  }
  return std::vector<std::int64_t>(sizes.begin(), sizes.end());
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const std::string_view units = "smh";
  constexpr std::chrono::seconds kSeconds[] = {std::chrono::seconds(1), std::chrono::minutes(1),
                                               std::chrono::hours(1)};
  const std::size_t unit = units.find(text.back());
  text.remove_suffix(1);
  const std::optional<std::int64_t> count = parse_number(text, 1'000'000);
  if (unit == units.npos || !count) return std::nullopt;
  return *count * kSeconds[unit];
}

std::vector<Shape> shapes_of(const Problem& problem, const ShapeGrid& grid) {
  return std::visit(
      [&](const auto& one) { return HarnessOf<std::decay_t<decltype(one)>>::shapes(one, grid); },
      problem);
}

void ShapeOptions::add_to(CLI::App& app) {
  for (const SizeOption& option : size_options()) {
    const auto& [name, help, otherwise, optional] = option.size;
    app.add_option(option_name(name), texts_[std::string(name)],
                   fmt::format("{}{} [{}]", help, optional ? "; none" : "", otherwise))
        ->type_name("N,A:B,...")
        ->group("Shapes (numbers and ranges: 1,3,8:64 is 1,3,8,16,32,64)");
  }
}

bool ShapeOptions::is_empty() const {
  return std::all_of(texts_.begin(), texts_.end(),
                     [](const auto& size) { return size.second.empty(); });
}

Result<ShapeGrid> ShapeOptions::grid(const std::vector<Problem>& problems) const {
  ShapeGrid grid;
  for (const auto& [size, operators] : size_options()) {
    const std::string option = option_name(size.name);
    const auto given = texts_.find(size.name);
    const std::string text = given == texts_.end() ? "" : given->second;
    const auto has_it = [&of = operators](const Problem& problem) {
      return std::find(of.begin(), of.end(), operator_of(problem)) != of.end();
    };
    if (!text.empty() && std::none_of(problems.begin(), problems.end(), has_it)) {
      return Status(Code::kInvalidArgument, fmt::format("{} {}: no problem is a {}", option, text,
                                                        join(operators, " or ")));
    }
    if (size.optional && text.empty()) continue;
    std::vector<std::int64_t>& sizes = grid[std::string(size.name)];
    if (size.optional && text == "none") continue;
    CUBINERY_RETURN_IF_ERROR(
        read_sizes(option, text.empty() ? size.otherwise : std::string_view(text), &sizes));
  }
  return grid;
}

}  // namespace cubinery
