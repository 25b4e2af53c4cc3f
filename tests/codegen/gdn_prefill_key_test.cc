// The views of GdnPrefillChunksKey and GdnPrefillScanKey.
#include <string>

#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "tests/catch.h"
#include "tests/codegen/key_checks.h"

namespace cubinery {
namespace {

using gdn::Checkpoints;
using test::broken_rule;
using test::count_candidates;
using Chunks = GdnPrefillChunksKey;
using Scan = GdnPrefillScanKey;

// Persistent: a part of kernel identities.
TEST_CASE("PrefillKeysPrintTheirFields", "[cpu]") {
  CHECK(canonical(Chunks{}) ==
        "gdn_prefill_chunks;key_dim=128;dtype=bf16;gate_dtype=f32;beta_dtype=f32;a_log_dtype=f32;"
        "dt_bias_dtype=f32;cu_seqlens_dtype=i32;varlen=false;decay=head;gate_mode=log;beta_mode="
        "given;"
        "use_qk_l2norm=false;only_decays=false;chunk_size=32;warps=2");
  CHECK(canonical(Scan{}) ==
        "gdn_prefill_scan;key_dim=128;value_dim=128;dtype=bf16;output_dtype=bf16;state_dtype=f32;"
        "index_dtype=i32;cu_seqlens_dtype=i32;varlen=false;state_layout=vk;state_location=dense;"
        "has_initial_state=true;store_state=true;checkpoints=none;"
        "segments=false;context_parallel=false;wgmma=false;threads_copy=false;makes_wy=false;gate_"
        "dtype=f32;"
        "beta_dtype=f32;a_log_dtype=f32;dt_bias_dtype=f32;decay=head;gate_mode=log;beta_mode=given;"
        "use_qk_l2norm=false;chunk_size=32;warps=4;stages=3");
}

TEST_CASE("PrefillCandidatesOfTheUsualProblemsAreThisMany", "[cpu]") {
  CHECK(count_candidates(Chunks{}) == 9);
  CHECK(count_candidates(Chunks{.dtype = DType::kF32}) == 9);
  CHECK(count_candidates(Scan{}) == 27);
  CHECK(count_candidates(Scan{.value_dim = 48}) == 18);
  CHECK(count_candidates(Scan{.dtype = DType::kF32}) == 18);
}

// So that spans between checkpoints may be any multiple of 16.
TEST_CASE("EveryHeadSizeHasCandidatesWithShortChunks", "[cpu]") {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int key_dim = 16; key_dim <= 256; key_dim += 16) {
      for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
        const Scan key{.key_dim = key_dim, .value_dim = value_dim, .dtype = dtype};
        int count = 0;
        for_each_candidate(key,
                           [&](const Scan& candidate) { count += candidate.chunk_size == 16; });
        if (count == 0) FAIL_CHECK(canonical(key));
      }
    }
  }
}

TEMPLATE_TEST_CASE("PrefillKernelsShareTheseRules", "[cpu]", Chunks, Scan) {
  using Key = TestType;
  for (const int dim : {-16, 0, 8, 24, 120, 272}) {
    CHECK(broken_rule<Key>([&](Key& key) { key.key_dim = dim; }) ==
          "key_dim must be a multiple of 16 from 16 to 256");
  }
  CHECK(broken_rule<Key>([](Key& key) { key.dtype = DType::kI32; }) ==
        "dtype must be f32, bf16 or f16");
  CHECK(broken_rule<Key>([](Key& key) { key.cu_seqlens_dtype = DType::kF32; }) ==
        "cu_seqlens_dtype must be i32 or i64");
  for (const int size : {-64, 0, 8, 48, 128}) {
    CHECK(broken_rule<Key>([&](Key& key) { key.chunk_size = size; }) ==
          "chunk_size must be 16, 32 or 64");
  }
}

TEST_CASE("EachRuleOfChunksIsNamed", "[cpu]") {
  const std::string floats = " must be f32, bf16 or f16";
  CHECK(broken_rule<Chunks>([](auto& key) { key.inputs.gate_dtype = DType::kI64; }) ==
        "gate_dtype" + floats);
  CHECK(broken_rule<Chunks>([](auto& key) { key.inputs.beta_dtype = DType::kI64; }) ==
        "beta_dtype" + floats);
  CHECK(broken_rule<Chunks>([](auto& key) { key.inputs.a_log_dtype = DType::kI64; }) ==
        "a_log_dtype" + floats);
  CHECK(broken_rule<Chunks>([](auto& key) { key.inputs.dt_bias_dtype = DType::kI64; }) ==
        "dt_bias_dtype" + floats);
  const auto broken_with_channels = [](int chunk_size, int warps) {
    return broken_rule<Chunks>([&](auto& key) {
      key.inputs.decay = gdn::Decay::kChannel;
      key.chunk_size = chunk_size;
      key.warps = warps;
    });
  };
  CHECK(broken_with_channels(16, 4) == "none");
  CHECK(broken_with_channels(32, 4) == "none");
  CHECK(broken_with_channels(64, 4) == "decay = channel needs chunk_size = 16 or 32");
  for (const int warps : {1, 2}) {
    CHECK(broken_with_channels(32, warps) == "decay = channel needs warps = 4");
  }
  for (const int warps : {-1, 0, 3, 8}) {
    CHECK(broken_rule<Chunks>([&](auto& key) { key.warps = warps; }) == "warps must be 1, 2 or 4");
  }
  const auto broken_with_decays = [](auto change) {
    return broken_rule<Chunks>([&](auto& key) {
      key.only_decays = true;
      change(key);
    });
  };
  CHECK(broken_with_decays([](auto&) {}) == "none");
  CHECK(broken_with_decays([](auto& key) { key.chunk_size = 16; }) ==
        "only_decays needs chunk_size = 32");
  CHECK(broken_with_decays([](auto& key) { key.key_dim = 64; }) ==
        "only_decays needs key_dim = 128 and dtype = bf16 or f16");
  CHECK(broken_with_decays([](auto& key) { key.dtype = DType::kF32; }) ==
        "only_decays needs key_dim = 128 and dtype = bf16 or f16");
  CHECK(broken_with_decays([](auto& key) {
          key.inputs.decay = gdn::Decay::kChannel;
          key.warps = 4;
        }) == "only_decays needs decay = head");
}

TEST_CASE("EachRuleOfTheScanIsNamed", "[cpu]") {
  for (const int dim : {-16, 0, 8, 24, 120, 272}) {
    CHECK(broken_rule<Scan>([&](auto& key) { key.value_dim = dim; }) ==
          "value_dim must be a multiple of 16 from 16 to 256");
  }
  CHECK(broken_rule<Scan>([](auto& key) { key.output_dtype = DType::kI64; }) ==
        "output_dtype must be f32, bf16 or f16");
  for (const DType dtype : {DType::kI64, DType::kF8E4M3, DType::kF8E5M2}) {
    CHECK(broken_rule<Scan>([&](auto& key) { key.states.dtype = dtype; }) ==
          "state_dtype must be f32, bf16 or f16");
  }
  for (const DType dtype : {DType::kF32, DType::kF8E4M3}) {
    CHECK(broken_rule<Scan>([&](auto& key) { key.states.index_dtype = dtype; }) ==
          "index_dtype must be i32 or i64");
  }
  for (const int warps : {-1, 0, 8}) {
    CHECK(broken_rule<Scan>([&](auto& key) { key.warps = warps; }) ==
          "warps must be from 1 to 7, with wgmma 8 too");
  }
  CHECK(broken_rule<Scan>([](auto& key) { key.warps = 3; }) == "16 * warps must divide value_dim");
  for (const int stages : {-1, 1, 5}) {
    CHECK(broken_rule<Scan>([&](auto& key) { key.stages = stages; }) ==
          "stages must be 2, 3, 4 or 6");
  }
  CHECK(broken_rule<Scan>([](auto& key) { key.stages = 6; }) == "6 stages need wgmma");
  CHECK(broken_rule<Scan>([](auto& key) { key.threads_copy = true; }) ==
        "threads_copy needs wgmma");
  const auto broken_with_wgmma = [](auto change) {
    return broken_rule<Scan>([&](auto& key) {
      key.wgmma = true;
      change(key);
    });
  };
  CHECK(broken_with_wgmma([](auto& key) { key.dtype = DType::kF32; }) ==
        "wgmma needs dtype = bf16 or f16");
  for (const int dim : {16, 48, 80, 112, 160, 256}) {
    CHECK(broken_with_wgmma([&](auto& key) { key.key_dim = dim; }) ==
          "wgmma needs key_dim = 32, 64, 96 or 128");
  }
  CHECK(broken_with_wgmma([](auto& key) { key.warps = 2; }) == "wgmma needs warps = 4 or 8");
  CHECK(broken_with_wgmma([](auto& key) { key.warps = 8; }) ==
        "warps = 8 needs makes_wy or threads_copy");
  CHECK(broken_with_wgmma([](auto& key) { key.stages = 2; }) == "wgmma needs stages = 3, 4 or 6");
  const auto broken_with_makers = [&](auto change) {
    return broken_with_wgmma([&](auto& key) {
      key.makes_wy = true;
      key.warps = 8;
      key.stages = 6;
      change(key);
    });
  };
  CHECK(broken_with_makers([](auto&) {}) == "none");
  CHECK(broken_rule<Scan>([](auto& key) { key.makes_wy = true; }) ==
        "makes_wy needs wgmma, without threads_copy and context_parallel");
  for (bool Scan::*other : {&Scan::threads_copy, &Scan::context_parallel}) {
    CHECK(broken_with_makers([&](auto& key) { key.*other = true; }) ==
          "makes_wy needs wgmma, without threads_copy and context_parallel");
  }
  CHECK(broken_with_makers([](auto& key) { key.chunk_size = 16; }) ==
        "makes_wy needs chunk_size = 32");
  CHECK(broken_with_makers([](auto& key) { key.stages = 3; }) == "makes_wy needs stages = 4 or 6");
  CHECK(broken_with_makers([](auto& key) { key.inputs.gate_dtype = DType::kI64; }) ==
        "gate_dtype must be f32, bf16 or f16");
  CHECK(broken_with_makers([](auto& key) { key.inputs.gate_mode = gdn::GateMode::kLowerBound; }) ==
        "makes_wy needs gate_mode = none, log, alpha or computed");
  CHECK(broken_with_makers([](auto& key) { key.states.dtype = DType::kBF16; }) ==
        "makes_wy needs state_dtype = f32 or f16");
  CHECK(broken_with_makers([](auto& key) { key.checkpoints = gdn::Checkpoints::kBefore; }) ==
        "makes_wy needs checkpoints = none, after or at");
  CHECK(broken_with_makers([](auto& key) { key.checkpoints = gdn::Checkpoints::kAt; }) == "none");
  const auto broken_with_tickets = [&](auto change) {
    return broken_with_makers([&](auto& key) {
      key.segments = true;
      change(key);
    });
  };
  CHECK(broken_with_tickets([](auto&) {}) == "none");
  CHECK(broken_with_tickets([](auto& key) { key.warps = 4; }) ==
        "makes_wy with segments needs warps = 8");
  CHECK(broken_with_tickets([](auto& key) { key.checkpoints = gdn::Checkpoints::kAfter; }) ==
        "makes_wy with segments needs checkpoints = none or at");
  const auto with_channels = [](auto& key) { key.inputs.decay = gdn::Decay::kChannel; };
  CHECK(broken_rule<Scan>(with_channels) == "none");
  CHECK(broken_with_wgmma(with_channels) == "none");
  CHECK(broken_with_makers([&](auto& key) {
          with_channels(key);
          key.stages = 4;
        }) == "makes_wy needs decay = head");
  CHECK(broken_rule<Scan>([&](auto& key) {
          with_channels(key);
          key.segments = true;
        }) == "none");
  // Kernels that are one have one key.
  CHECK(broken_with_wgmma([](auto& key) { key.inputs.use_qk_l2norm = true; }) ==
        "the inputs are of keys with makes_wy");
  CHECK(broken_rule<Scan>([](auto& key) {
          key.chunk_size = 64;
          key.stages = 4;
        }) == "none");
  CHECK(broken_rule<Scan>([](auto& key) {
          key.dtype = DType::kF32;
          key.stages = 4;
          key.key_dim = 256;
          key.chunk_size = 64;
        }) == "the stages pass 227 KiB of shared memory");
  CHECK(broken_rule<Scan>([](auto& key) {
          key.key_dim = 144;
          key.chunk_size = 64;
        }) == "key_dim > 128 needs chunk_size = 16 or 32");
}

// Pointers are kept at the end of a block's shared memory.
TEST_CASE("SharedMemoryOfTheScanEndsAligned", "[cpu]") {
  for (const int key_dim : {32, 64, 96, 128}) {
    for (const bool segments : {false, true}) {
      for (const bool wgmma : {false, true}) {
        const Scan problem{
            .key_dim = key_dim, .value_dim = key_dim, .segments = segments, .wgmma = wgmma};
        for_each_candidate(problem, [](const Scan& key) {
          INFO(canonical(key));
          CHECK(shared_bytes(key) % 8 == 0);
        });
      }
    }
  }
}

TEST_CASE("WhatSpillsIsNoCandidate", "[cpu]") {
  const std::string f32 = "dtype = f32 needs chunk_size = 16 or 32, with key_dim > 128 16";
  const auto with_f32 = [](int key_dim, int chunk_size) {
    return broken_rule<Scan>([=](auto& key) {
      key.dtype = DType::kF32;
      key.key_dim = key_dim;
      key.chunk_size = chunk_size;
      key.stages = 2;
    });
  };
  CHECK(with_f32(128, 64) == f32);
  CHECK(with_f32(128, 32) == "none");
  CHECK(with_f32(144, 32) == f32);
  CHECK(with_f32(144, 16) == "none");
}

}  // namespace
}  // namespace cubinery
