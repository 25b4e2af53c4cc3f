// Results of tuning that nobody measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cubinery/tuning.h"
#include "results/records.h"
#include "results/shape.h"

namespace cubinery::test {

// A GPU of sm_90a, the fake driver's if nothing is changed.
inline GpuIdentity fake_gpu(int sm_count = 132) {
  return {.arch = "sm_90a",
          .capability = "9.0",
          .sm_count = sm_count,
          .l2_bytes = 50 << 20,
          .shared_bytes_per_sm = 228 << 10,
          .mig = "",
          .name = "Fake GPU"};
}

// `values` won for the shape with these features.
inline TuningResult made_up_result(const TuningSpace& space, Shape features,
                                   std::vector<TunedValue> values, const std::string& nvrtc,
                                   const std::string& templates,
                                   const GpuIdentity& gpu = fake_gpu()) {
  TuningResult result{};
  result.setting.op = space.op;
  result.setting.problem = space.problem;
  result.setting.shape = features;
  result.setting.bucket = bucket_of(features);
  result.setting.features = std::move(features);
  result.setting.gpu = gpu;
  result.setting.nvrtc = nvrtc;
  result.templates = templates;
  result.ms = {.median = 0.1, .p10 = 0.1, .p90 = 0.1, .samples = 20};
  result.otherwise = values;
  result.otherwise_ms = result.ms;
  result.runner_up = values;
  result.configuration = std::move(values);
  result.time = "2026-01-01T00:00:00Z";
  return result;
}

}  // namespace cubinery::test
