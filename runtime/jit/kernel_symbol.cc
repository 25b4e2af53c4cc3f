#include "runtime/jit/kernel_symbol.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cache/cubin_note.h"

namespace cubinery {
namespace {

// "void ns::scale<float, 4>(float*)" for "_ZN2ns5scaleIfLi4EEEvPT_"; a symbol of C as it is.
std::string readable(const std::string& symbol) {
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &failed), &std::free);
  return failed == 0 && text ? std::string(text.get()) : symbol;
}

// Without blanks, and without "::" in front.
std::string packed(std::string_view text) {
  std::string found;
  std::copy_if(text.begin(), text.end(), std::back_inserter(found),
               [](char c) { return c != ' '; });
  return found.starts_with("::") ? found.substr(2) : found;
}

// The function's name in what readable() gives: without what it returns, which templates alone
// tell, and without its parameters.
std::string name_in(std::string_view function) {
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (depth == 0 && c == ' ') start = i + 1;
    if (depth == 0 && c == '(') return packed(function.substr(start, i - start));
  }
  return packed(function.substr(start));
}

std::string without_arguments(std::string_view name) {
  return std::string(name.substr(0, name.ends_with('>') ? name.find('<') : name.npos));
}

}  // namespace

Result<std::string> symbol_of(std::string_view cubin, std::string_view name) {
  const std::vector<std::string> symbols = kernels_in(cubin);
  const std::string wanted = packed(name);
  std::vector<std::string> exact, alike, all;
  for (const std::string& symbol : symbols) {
    all.push_back(readable(symbol));
    const std::string found = name_in(all.back());
    if (wanted.empty() || found == wanted || symbol == name) exact.push_back(symbol);
    if (without_arguments(found) == without_arguments(wanted)) alike.push_back(symbol);
  }
  // "scale<float, kFour>" is spelled "scale<float, 4>" there: the only instance must be it.
  const std::vector<std::string>& matches = exact.empty() ? alike : exact;
  if (matches.size() == 1) return matches.front();
  const std::string listed = all.empty() ? "none" : fmt::format("{}", fmt::join(all, "; "));
  return Status(
      Code::kCompileFailed,
      wanted.empty()
          ? fmt::format("the text gives {} kernels; accepted without a name: one; it has: "
                        "{}",
                        symbols.size(), listed)
          : fmt::format("name is \"{}\", and {} kernels of the cubin are called so; it "
                        "has: {}",
                        name, matches.size(), listed));
}

}  // namespace cubinery
