// What the examples in comments of the public headers use without declaring it.
#pragma once

#include <string>
#include <string_view>

#include "cubinery/gdn.h"
#include "cubinery/ranks.h"
#include "cubinery/tuning.h"

using namespace cubinery;

struct RowScaleKey {
  DType dtype = DType::kF32;
  int threads = 256;
};
struct RowScaleParams {
  const void* x;
  void* y;
  int cols;
};
constexpr const char* why_invalid(const RowScaleKey&) { return nullptr; }
constexpr int threads(const RowScaleKey& key) { return key.threads; }

int report(std::string_view message, std::string_view log);

struct Surroundings {
  Options options;
  const Context& context;
  Stream stream;
  Tunable& tunable;
  std::string config_json;
  gdn::DecodeArgs decode_args;
  unsigned rows;
  const void* x;
  void* y;
  int cols;
  gdn::PrefillProblem problem;
  gdn::PrefillArgs args;
  gdn::Workspace workspace;
  void* comm;
  int rank;
};

// Each example is in a block of its own, so that it may declare these names anew.
#define SURROUNDINGS(s)                                                                            \
  [[maybe_unused]] auto& [options, context, stream, tunable, config_json, decode_args, rows, x, y, \
                          cols, problem, args, workspace, comm, rank] = s;
