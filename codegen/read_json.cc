#include "codegen/read_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

// Puts the parser's events together to a value.  The library's own handler keeps no limits, and
// looks through all members of an object for each new one.
class LimitedHandler {
 public:
  explicit LimitedHandler(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const Json::string_t&) { return add(value); }
  bool string(Json::string_t& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return refuse("a binary value"); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return open_.pop_back(), true; }
  bool end_array() { return open_.pop_back(), true; }

  bool key(Json::string_t& name) {
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
  Json root_;
  std::vector<Open> open_;
  std::size_t values_ = 0;
  std::string wrong_;
  std::size_t byte_ = 0;
};

}  // namespace

Result<Json> read_json(std::string_view what, std::string_view text, const JsonLimits& limits) {
  const std::string begin = what.empty() ? "" : fmt::format("{}: ", what);
  if (text.size() > limits.bytes) {
    return Status(Code::kInvalidArgument, fmt::format("{}{} bytes of JSON; accepted: at most {}",
                                                      begin, text.size(), limits.bytes));
  }
  const char* reached = text.data();
  LimitedHandler handler(limits);
  const bool is_whole = Json::sax_parse(Cursor(text.data(), &reached),
                                        Cursor(text.data() + text.size(), &reached), &handler);
  if (is_whole) return handler.take();
  const std::size_t byte =
      handler.byte() != 0 ? handler.byte() : static_cast<std::size_t>(reached - text.data());
  return Status(Code::kInvalidArgument,
                fmt::format("{}{} at {}", begin, handler.wrong(), position(text, byte)));
}

std::string excerpt(std::string_view text) {
  if (text.size() <= kExcerptBytes) return std::string(text);
  std::size_t end = kExcerptBytes;
  // Not within a character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return fmt::format("{}...", text.substr(0, end));
}

std::string json_excerpt(const Json& value) {
  return excerpt(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace cubinery
