#include "cli/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace cubinery {
namespace {

constexpr const char* kDefaultBatch = "1:256";
constexpr const char* kDefaultTokens = "512:32768";
constexpr const char* kDefaultSequences = "1,4,8";
constexpr std::int64_t kLargest = std::int64_t{1} << 30;

std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t largest) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 1 || value > largest) return std::nullopt;
  return value;
}

Status read_sizes(const char* option, std::string_view text, std::vector<std::int64_t>* sizes) {
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

void add_prefill_shapes(std::int64_t tokens, std::int64_t sequences, bool varlen,
                        const ShapeGrid& grid, std::vector<Shape>* shapes) {
  if (tokens < sequences || (!varlen && tokens % sequences != 0)) return;
  const Shape even = {{"tokens", tokens}, {"sequences", sequences}};
  shapes->push_back(even);
  if (!varlen || sequences == 1) return;
  const std::vector<std::int64_t> half = {tokens / 2};
  for (const std::int64_t longest : grid.max_seqlen.value_or(half)) {
    const bool is_longest = longest * sequences > tokens;
    const bool leaves_tokens = tokens - longest >= sequences - 1;
    if (!is_longest || !leaves_tokens) continue;
    shapes->push_back(even);
    shapes->back().push_back({"max_seqlen", longest});
  }
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
  std::vector<Shape> shapes;
  if (const auto* prefill = std::get_if<gdn::PrefillProblem>(&problem)) {
    for (const std::int64_t sequences : grid.sequences) {
      for (const std::int64_t tokens : grid.tokens) {
        add_prefill_shapes(tokens, sequences, prefill->varlen, grid, &shapes);
      }
    }
    return shapes;
  }
  for (const std::int64_t batch : grid.batch) shapes.push_back({{"batch", batch}});
  return shapes;
}

void ShapeOptions::add_to(CLI::App& app) {
  const std::string group = "Shapes (numbers and ranges: 1,3,8:64 is 1,3,8,16,32,64)";
  const auto add = [&](const char* name, std::string* text, const std::string& help) {
    app.add_option(name, *text, help)->type_name("N,A:B,...")->group(group);
  };
  add("--batch", &batch_, fmt::format("Decode: requests of a step [{}]", kDefaultBatch));
  add("--tokens", &tokens_, fmt::format("Prefill: tokens of all sequences [{}]", kDefaultTokens));
  add("--sequences", &sequences_,
      fmt::format("Prefill: sequences, equally long [{}]", kDefaultSequences));
  add("--max-seqlen", &max_seqlen_,
      "Packed prefill: besides, one sequence has this many tokens and the others share the rest; "
      "none [half of the tokens]");
}

Result<ShapeGrid> ShapeOptions::grid(const std::vector<Problem>& problems) const {
  const auto read = [&](const char* option, std::string_view op, const std::string& text,
                        std::string_view otherwise, std::vector<std::int64_t>* sizes) -> Status {
    const auto is_of_op = [&](const Problem& problem) { return operator_of(problem) == op; };
    if (!text.empty() && std::none_of(problems.begin(), problems.end(), is_of_op)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{} {}: no problem is a {}", option, text, op));
    }
    return read_sizes(option, text.empty() ? otherwise : text, sizes);
  };
  ShapeGrid grid;
  CUBINERY_RETURN_IF_ERROR(read("--batch", "gdn_decode", batch_, kDefaultBatch, &grid.batch));
  CUBINERY_RETURN_IF_ERROR(read("--tokens", "gdn_prefill", tokens_, kDefaultTokens, &grid.tokens));
  CUBINERY_RETURN_IF_ERROR(
      read("--sequences", "gdn_prefill", sequences_, kDefaultSequences, &grid.sequences));
  if (max_seqlen_.empty()) return grid;
  grid.max_seqlen.emplace();
  // "1" is longer than no other sequence: what `none` means.
  CUBINERY_RETURN_IF_ERROR(read("--max-seqlen", "gdn_prefill",
                                max_seqlen_ == "none" ? "1" : max_seqlen_, {}, &*grid.max_seqlen));
  return grid;
}

}  // namespace cubinery
