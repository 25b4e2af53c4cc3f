#include "codegen/read_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <limits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cubinery {
namespace {

constexpr int kNumberOutOfRange = 406;  // exception::id, documented by nlohmann_json
constexpr std::size_t kExcerptBytes = 160;

// Goes through the text and leaves behind how far it came, which handlers are not told.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// "line 3, column 7" of the byte number `byte`, all counted from 1.
std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == before.npos ? 0 : newline + 1) + 1;
  if (text.find('\n') == text.npos) return fmt::format("column {}", column);
  return fmt::format("line {}, column {}", line, column);
}

// Numbers that Python's json module writes and JSON has not.
struct NonFinite {
  std::string_view name;
  double value;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array<NonFinite, 3> kNonFinite{{{"-Infinity", -kInfinity},
                                               {"Infinity", kInfinity},
                                               {"NaN", std::numeric_limits<double>::quiet_NaN()}}};

// A string of a character that nobody writes; with its quotes it is as long as the name, so that
// places in messages hold.
constexpr char kStandIn = '\x7f';
std::string stand_in(const NonFinite& number) {
  return std::string(number.name.size() - 2, kStandIn);
}

bool is_name_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Such a number that begins at `text`, which follows `before`.
const NonFinite* non_finite_at(std::string_view text, char before) {
  if (is_name_part(before) || before == '-' || before == '+' || before == '.') return nullptr;
  for (const NonFinite& number : kNonFinite) {
    const std::size_t end = number.name.size();
    if (!text.starts_with(number.name)) continue;
    return end < text.size() && is_name_part(text[end]) ? nullptr : &number;
  }
  return nullptr;
}

// The text with strings in the place of such numbers.
std::string with_stand_ins(std::string_view text) {
  std::string plain(text);
  bool is_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_string) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        is_string = false;
      continue;
    }
    is_string = text[i] == '"';
    const NonFinite* found = non_finite_at(text.substr(i), i == 0 ? ' ' : text[i - 1]);
    if (found == nullptr) continue;
    plain.replace(i, found->name.size(), '"' + stand_in(*found) + '"');
    i += found->name.size() - 1;
  }
  return plain;
}

// Puts the parser's events together to a value.  The library's own handler keeps no limits, and
// looks through all members of an object for each new one.
class LimitedHandler {
 public:
  LimitedHandler(const JsonLimits& limits, bool reads_stand_ins)
      : limits_(limits), reads_stand_ins_(reads_stand_ins) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const Json::string_t&) { return add(value); }
  bool string(Json::string_t& value) {
    const NonFinite* number = number_of(value);
    return number != nullptr ? add(number->value) : add(std::move(value));
  }
  bool binary(Json::binary_t&) { return refuse("a binary value"); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return open_.pop_back(), true; }
  bool end_array() { return open_.pop_back(), true; }

  bool key(Json::string_t& name) {
    if (number_of(name) != nullptr) return refuse("not JSON");
    Open& object = open_.back();
    if (object.names.size() == limits_.members) {
      return refuse(fmt::format("an object of more than {} members", limits_.members));
    }
    if (!object.names.insert(name).second) {
      return refuse(fmt::format("{} twice in one object", json_excerpt(name)));
    }
    object.name = std::move(name);
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const Json::exception& error) {
    byte_ = byte;
    return refuse(error.id == kNumberOutOfRange ? "a number that no double holds" : "not JSON");
  }

  Json take() { return std::move(root_); }
  const std::string& wrong() const { return wrong_; }
  // Of what is wrong, where the parser told; else 0.
  std::size_t byte() const { return byte_; }

 private:
  struct Open {
    Json* value;  // an array or object that is not at its end; nothing around it changes meanwhile
    std::string name{};  // of the member that comes next
    std::unordered_set<std::string> names{};
  };

  bool refuse(std::string what) {
    wrong_ = std::move(what);
    return false;
  }

  // That the string stands for; null: it is one.
  const NonFinite* number_of(const std::string& text) const {
    if (!reads_stand_ins_) return nullptr;
    const auto found =
        std::find_if(kNonFinite.begin(), kNonFinite.end(),
                     [&text](const NonFinite& number) { return text == stand_in(number); });
    return found == kNonFinite.end() ? nullptr : &*found;
  }

  bool add(Json value) { return place(std::move(value)) != nullptr; }

  bool open(Json value) {
    if (open_.size() == limits_.depth) {
      return refuse(fmt::format("arrays and objects more than {} deep", limits_.depth));
    }
    Json* const placed = place(std::move(value));
    if (placed == nullptr) return false;
    open_.push_back({placed});
    return true;
  }

  Json* place(Json value) {
    if (++values_ > limits_.values) {
      refuse(fmt::format("more than {} values", limits_.values));
      return nullptr;
    }
    if (open_.empty()) return &(root_ = std::move(value));
    Json& outer = *open_.back().value;
    if (outer.is_array()) {
      auto& elements = outer.get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return &elements.back();
    }
    // NOTE: as to a vector, without a search: key() has seen that the name is new.
    auto& members = outer.get_ref<Json::object_t&>();
    members.push_back({std::move(open_.back().name), std::move(value)});
    return &members.back().second;
  }

  const JsonLimits limits_;
  const bool reads_stand_ins_;
  Json root_;
  std::vector<Open> open_;
  std::size_t values_ = 0;
  std::string wrong_;
  std::size_t byte_ = 0;
};

Result<Json> parse(std::string_view what, std::string_view text, const JsonLimits& limits,
                   bool reads_stand_ins) {
  const std::string begin = what.empty() ? "" : fmt::format("{}: ", what);
  if (text.size() > limits.bytes) {
    return Status(Code::kInvalidArgument, fmt::format("{}{} bytes of JSON; accepted: at most {}",
                                                      begin, text.size(), limits.bytes));
  }
  const char* reached = text.data();
  LimitedHandler handler(limits, reads_stand_ins);
  const bool is_whole = Json::sax_parse(Cursor(text.data(), &reached),
                                        Cursor(text.data() + text.size(), &reached), &handler);
  if (is_whole) return handler.take();
  const std::size_t byte =
      handler.byte() != 0 ? handler.byte() : static_cast<std::size_t>(reached - text.data());
  return Status(Code::kInvalidArgument,
                fmt::format("{}{} at {}", begin, handler.wrong(), position(text, byte)));
}

}  // namespace

Result<Json> read_json(std::string_view what, std::string_view text, const JsonLimits& limits) {
  return parse(what, text, limits, /*reads_stand_ins=*/false);
}

Result<Json> read_python_json(std::string_view what, std::string_view text,
                              const JsonLimits& limits) {
  // A text that has the character is read as it is.
  if (text.size() > limits.bytes || text.find(kStandIn) != text.npos) {
    return read_json(what, text, limits);
  }
  return parse(what, with_stand_ins(text), limits, /*reads_stand_ins=*/true);
}

std::string excerpt(std::string_view text) {
  if (text.size() <= kExcerptBytes) return std::string(text);
  std::size_t end = kExcerptBytes;
  // Not within a character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return fmt::format("{}...", text.substr(0, end));
}

std::string json_excerpt(const Json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    const auto found =
        std::find_if(kNonFinite.begin(), kNonFinite.end(), [number](const NonFinite& one) {
          return one.value == number || (std::isnan(one.value) && std::isnan(number));
        });
    return std::string(found->name);  // there are no others
  }
  return excerpt(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace cubinery
