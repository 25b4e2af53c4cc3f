// Records for the tests of what is written down.
#pragma once

#include <string>

#include "results/records.h"
#include "results/shape.h"

namespace cubinery::test {

inline Setting sample_setting(std::int64_t batch = 8) {
  Setting setting;
  setting.op = "gdn_decode";
  setting.problem = "key_dim=128;dtype=bf16";
  setting.shape = {{"batch", batch}, {"heads", 32}};
  setting.features = {{"states", batch * 32}};
  setting.bucket = bucket_of(setting.features);
  setting.gpu = {.arch = "sm_90a",
                 .capability = "9.0",
                 .sm_count = 132,
                 .l2_bytes = 62914560,
                 .shared_bytes_per_sm = 233472,
                 .mig = "1g.18gb",
                 .name = "NVIDIA H200"};
  setting.nvrtc = "13.0.88";
  setting.driver = "580.159.04";
  setting.bytes = 67108864;
  return setting;
}

inline std::vector<TunedValue> sample_configuration(int warps = 4) {
  return {{"warps", std::to_string(warps)},
          {"vec", "-8", false, true},
          {"stream", "true"},
          {"order", "tree", true, true},
          {"digits", "16", true}};
}

inline constexpr const char* kSampleTemplates = "00112233445566778899aabbccddeeff";

inline Measurement sample_measurement(std::int64_t batch = 8, int warps = 4,
                                      double ms = 0.0123457) {
  Measurement measurement;
  measurement.setting = id_of(sample_setting(batch));
  measurement.configuration = sample_configuration(warps);
  measurement.templates = kSampleTemplates;
  measurement.ms = {.median = ms, .p10 = 0.012, .p90 = 0.0131, .samples = 50};
  measurement.check = {.error = 1.5e-6, .limit = 2e-5, .worst = "o, undecayed gates"};
  measurement.kernels = {{"gdn_decode", 96, 4096, 0, 812.5}};
  measurement.clocks = {1980, 3201};
  measurement.check_ms = 31.25;
  measurement.timing_ms = 102.5;
  measurement.time = "2026-11-21T21:00:00Z";
  return measurement;
}

inline TuningResult sample_result(std::int64_t batch = 8, double ms = 0.0123457) {
  TuningResult result;
  result.setting = sample_setting(batch);
  result.configuration = sample_configuration(4);
  result.ms = {.median = ms, .p10 = 0.012, .p90 = 0.0131, .samples = 200};
  result.templates = kSampleTemplates;
  result.agreed = sample_configuration(8);
  result.agreed_ms = {.median = 0.0125, .p10 = 0.0124, .p90 = 0.0127, .samples = 200};
  result.agreed_templates = kSampleTemplates;
  result.otherwise = sample_configuration(1);
  result.otherwise_ms = {.median = 0.015, .p10 = 0.0149, .p90 = 0.0152, .samples = 200};
  result.runner_up = sample_configuration(2);
  result.margin = 0.021;
  result.uncertainty = 0.0125;
  result.clocks = {1980, 3201};
  result.candidates = 36;
  result.measured = 30;
  result.rejected = 6;
  result.time = "2026-11-21T21:05:00Z";
  return result;
}

}  // namespace cubinery::test
