#include "cli/left_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/print.h"

namespace cubinery {
namespace {

// What does the form's work in its place; empty: nothing.
std::string_view instead_of(std::string_view form) {
  const auto found = std::find_if(model_forms().begin(), model_forms().end(),
                                  [form](const Form& one) { return one.name == form; });
  return found == model_forms().end() ? std::string_view() : found->instead;
}

}  // namespace

void LeftOuts::add(const Request& request, const Status& why, std::string_view arch,
                   std::string_view instead) {
  all_.push_back(
      {.what = request.asked.form.empty() ? operator_of(request.asked.problem) : request.asked.form,
       .origin = request.origin,
       .arch = std::string(arch),
       .why = std::string(why.message()),
       .instead = std::string(instead)});
}

void LeftOuts::add(const Request& request, const Status& why, std::string_view arch) {
  add(request, why, arch, {});
}

void LeftOuts::add_replaced(const Request& request, const Status& why, std::string_view arch) {
  add(request, why, arch, instead_of(request.asked.form));
}

void LeftOuts::add_line(std::size_t number, std::string_view file, std::string_view why) {
  all_.push_back({.what = fmt::format("line {}", number),
                  .origin = std::string(file),
                  .arch = {},
                  .why = std::string(why),
                  .instead = {}});
}

void LeftOuts::print() const {
  // Sizes and models that lack the same for the same reason share a line.
  std::vector<std::pair<const One*, std::size_t>> lines;
  for (const One& one : all_) {
    const auto is_same = [&one](const auto& line) {
      return line.first->what == one.what && line.first->arch == one.arch &&
             line.first->why == one.why;
    };
    const auto same = std::find_if(lines.begin(), lines.end(), is_same);
    if (same == lines.end()) {
      lines.emplace_back(&one, 1);
    } else {
      ++same->second;
    }
  }
  for (const auto& [one, count] : lines) {
    std::string text = fmt::format("left out: {} of {}", one->what, one->origin);
    if (count > 1) text += fmt::format(", and {} more", count - 1);
    if (!one->arch.empty()) text += fmt::format(", for {}", one->arch);
    text += fmt::format(": {}", one->why);
    if (!one->instead.empty()) text += fmt::format("; {} do the same", one->instead);
    print_error(text);
  }
}

nlohmann::ordered_json LeftOuts::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const One& one : all_) {
    nlohmann::ordered_json object = {{"what", one.what}, {"origin", one.origin}};
    if (!one.arch.empty()) object["arch"] = one.arch;
    object["why"] = one.why;
    if (!one.instead.empty()) object["instead"] = one.instead;
    list.push_back(std::move(object));
  }
  return list;
}

int LeftOuts::exit_code(int code) const {
  const bool is_missing =
      std::any_of(all_.begin(), all_.end(), [](const One& one) { return one.instead.empty(); });
  return code == kExitOk && is_missing ? kExitLeftOut : code;
}

}  // namespace cubinery
