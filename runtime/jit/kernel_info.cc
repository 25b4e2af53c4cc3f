#include "runtime/jit/kernel_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "codegen/read_json.h"

namespace cubinery {
namespace {

// More than any GPU or compilation has.
constexpr int kMostRegisters = 1 << 12;      // per thread
constexpr int kMostBytes = 1 << 30;          // shared, or spilled
constexpr double kMostCompileMs = 604800e3;  // a week
constexpr std::size_t kLongestSymbol = 1 << 16;

// Of ptxas's log, in front of a kernel's symbol in quotes.
constexpr std::string_view kEntryLine = "ptxas info    : Compiling entry function ";

bool is_symbol(std::string_view text) {
  const auto is_of_symbol = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '.';
  };
  return !text.empty() && text.size() <= kLongestSymbol &&
         std::all_of(text.begin(), text.end(), is_of_symbol);
}

// The integer in front of `unit`, as in "16 bytes spill stores"; 0 when the line does not have it.
int number_before(std::string_view line, std::string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == line.npos) return 0;
  std::size_t start = at;
  while (start > 0 && line[start - 1] >= '0' && line[start - 1] <= '9') --start;
  int value = 0;
  std::from_chars(line.data() + start, line.data() + at, value);
  return value;
}

template <class Function>
void for_each_log_line(std::string_view text, Function&& function) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    function(line);
  }
}

// Whether ptxas prints the line for every kernel, whatever it found.
bool is_routine(std::string_view line) {
  for (const std::string_view text :
       {" bytes gmem", "ptxas info    : Compiling entry function",
        "ptxas info    : Function properties for", "ptxas info    : Used", "bytes stack frame",
        "ptxas info    : Compile time ="}) {
    if (line.find(text) != line.npos) return true;
  }
  return line.empty();
}

}  // namespace

bool read_resources(std::string_view log, KernelInfo* info) {
  bool found = false;
  info->log.clear();
  for_each_log_line(log, [&](std::string_view line) {
    if (line.find("ptxas info    : Used ") != line.npos) {
      found = true;
      info->registers = number_before(line, " registers");
      info->static_shared_bytes = number_before(line, " bytes smem");
    }
    if (line.find("bytes stack frame") != line.npos) {
      info->spill_store_bytes += number_before(line, " bytes spill stores");
      info->spill_load_bytes += number_before(line, " bytes spill loads");
    }
    if (!is_routine(line)) info->log += std::string(line) + "\n";
  });
  return found;
}

bool reports_kernel(std::string_view log, std::string_view symbol) {
  return log.find(fmt::format("{}'{}'", kEntryLine, symbol)) != log.npos;
}

std::string log_of_kernel(std::string_view log, std::string_view symbol) {
  const std::string own_line = fmt::format("{}'{}'", kEntryLine, symbol);
  std::string own;
  bool is_own = true;  // what is not said of any kernel is
  for_each_log_line(log, [&](std::string_view line) {
    if (line.find(kEntryLine) != line.npos) is_own = line.find(own_line) != line.npos;
    if (is_own || !is_routine(line)) own.append(line).append("\n");
  });
  return own;
}

std::string unknown_name(std::string_view log) {
  constexpr std::string_view kOfNames = "__nv_name_map(";
  constexpr std::string_view kError = " error: ";
  std::string why;
  bool is_alone = true;
  for_each_log_line(log, [&](std::string_view line) {
    const std::size_t error = line.find(kError);
    if (error == line.npos) return;
    if (!line.starts_with(kOfNames)) is_alone = false;
    if (why.empty()) why = line.substr(error + kError.size());
  });
  return is_alone ? why : "";
}

std::string metadata_json(const KernelInfo& info, std::string questions) {
  // Persistent: the order too, that of the alphabet.
  Json object{{"compile_ms", info.compile_ms},
              {"log", info.log},
              {"registers", info.registers},
              {"spill_load_bytes", info.spill_load_bytes},
              {"spill_store_bytes", info.spill_store_bytes},
              {"static_shared_bytes", info.static_shared_bytes}};
  if (!info.symbol.empty()) object["symbol"] = info.symbol;
  if (!questions.empty()) object["includes"] = std::move(questions);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string questions_in(std::string_view json) {
  const Result<Json> object = read_json("", json);
  if (!object || !object->is_object()) return "";
  const auto found = object->find("includes");
  return found != object->end() && found->is_string() ? found->get<std::string>() : "";
}

bool read_metadata(std::string_view json, KernelInfo* info) {
  const Result<Json> object = read_json("", json);
  if (!object || !object->is_object()) return false;
  const auto integer = [&](const char* name, int most, int* value) {
    const auto found = object->find(name);
    if (found == object->end() || !found->is_number_unsigned()) return false;
    if (found->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) return false;
    *value = found->get<int>();
    return true;
  };
  const auto ms = object->find("compile_ms");
  const auto log = object->find("log");
  if (ms == object->end() || !ms->is_number() || log == object->end() || !log->is_string()) {
    return false;
  }
  info->compile_ms = ms->get<double>();
  info->log = log->get<std::string>();
  info->symbol.clear();
  if (const auto symbol = object->find("symbol"); symbol != object->end()) {
    if (!symbol->is_string() || !is_symbol(symbol->get_ref<const std::string&>())) return false;
    info->symbol = symbol->get<std::string>();
  }
  return info->compile_ms >= 0 && info->compile_ms <= kMostCompileMs &&
         integer("registers", kMostRegisters, &info->registers) &&
         integer("static_shared_bytes", kMostBytes, &info->static_shared_bytes) &&
         integer("spill_store_bytes", kMostBytes, &info->spill_store_bytes) &&
         integer("spill_load_bytes", kMostBytes, &info->spill_load_bytes);
}

}  // namespace cubinery
