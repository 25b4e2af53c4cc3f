#include "benchmarks/prefill_rows.h"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace cubinery::bench {
namespace {

using nlohmann::ordered_json;

std::vector<ListedRow> read(const std::string& path) {
  std::ifstream file(path);
  const ordered_json root = ordered_json::parse(file, nullptr, false);
  if (!root.is_object()) throw std::runtime_error("cannot read " + path);
  std::vector<ListedRow> rows;
  for (const ordered_json& line : root.at("rows")) {
    ListedRow listed;
    listed.row = {.protocol = line.at("protocol"),
                  .qk_heads = line.at("qk_heads"),
                  .v_heads = line.at("v_heads"),
                  .seqlens = line.at("seqlens")};
    for (const char* name : {"peers_ms", "best_published_ms", "best_published"}) {
      if (line.contains(name)) listed.others[name] = line.at(name);
    }
    rows.push_back(std::move(listed));
  }
  return rows;
}

}  // namespace

std::vector<ListedRow> prefill_rows(const std::string& path, const std::string& set) {
  std::vector<ListedRow> rows;
  if (set == "gates") {
    for (const char* protocol : {"strong-bf16", "undecayed-bf16", "init-bf16", "extreme-bf16"}) {
      rows.push_back({.row = {.protocol = protocol}});
    }
    return rows;
  }
  if (set != "all" && set != "headline") {
    throw std::runtime_error("rows " + set + "; accepted: headline, all, gates");
  }
  for (ListedRow& listed : read(path)) {
    if (set == "all" || listed.others.contains("peers_ms")) rows.push_back(std::move(listed));
  }
  return rows;
}

}  // namespace cubinery::bench
