// Tensors of the C++ API as DLTensors.
#pragma once

#include <deque>

#include "cubinery/c_api.h"
#include "cubinery/gdn.h"

namespace cubinery::test {

inline DLDataType dl_dtype(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {kDLFloat, 32, 1};
    case DType::kBF16:
      return {kDLBfloat, 16, 1};
    case DType::kF16:
      return {kDLFloat, 16, 1};
    case DType::kI32:
      return {kDLInt, 32, 1};
    case DType::kI64:
      return {kDLInt, 64, 1};
    case DType::kF8E4M3:
      return {10, 8, 1};  // kDLFloat8_e4m3fn and kDLFloat8_e5m2 of newer headers
    case DType::kF8E5M2:
      return {12, 8, 1};
    case DType::kBool:
      return {6, 8, 1};  // kDLBool of newer headers
  }
  return {};
}

// Owns the DLTensors and what they point at.
class DlViews {
 public:
  // A view on CUDA device 0, NULL for an absent tensor.
  DLTensor* of(const Tensor& tensor) {
    if (!tensor.present()) return nullptr;
    Tensor& kept = tensors_.emplace_back(tensor);
    return &views_.emplace_back(DLTensor{.data = kept.data,
                                         .device = {kDLCUDA, 0},
                                         .ndim = kept.rank,
                                         .dtype = dl_dtype(kept.dtype),
                                         .shape = kept.shape.data(),
                                         .strides = kept.strides.data(),
                                         .byte_offset = 0});
  }

  CubineryDecodeArgs of(const gdn::DecodeArgs& args) {
    CubineryDecodeArgs views = CUBINERY_DECODE_ARGS_INIT;
    set_shared(args, &views);
    set_norm(args, &views);
    views.x = of(args.x);
    views.conv_weight = of(args.conv_weight);
    views.conv_bias = of(args.conv_bias);
    views.conv_state = of(args.conv_state);
    views.conv_state_out = of(args.conv_state_out);
    return views;
  }

  CubineryPrefillArgs of(const gdn::PrefillArgs& args) {
    CubineryPrefillArgs views = CUBINERY_PREFILL_ARGS_INIT;
    set_shared(args, &views);
    views.cu_seqlens = of(args.cu_seqlens);
    views.has_initial_state = of(args.has_initial_state);
    set_checkpoints(args, &views);
    views.max_seqlen = args.max_seqlen;
    return views;
  }

  CubineryVerifyArgs of(const gdn::VerifyArgs& args) {
    CubineryVerifyArgs views = CUBINERY_VERIFY_ARGS_INIT;
    set_shared(args, &views);
    views.cu_seqlens = of(args.cu_seqlens);
    views.accepted = of(args.accepted);
    views.parents = of(args.parents);
    set_norm(args, &views);
    return views;
  }

  CubineryCommitLayer of(const gdn::CommitLayer& layer) {
    CubineryCommitLayer views = CUBINERY_COMMIT_LAYER_INIT;
    views.k = of(layer.k);
    views.v = of(layer.v);
    set_gates(layer, &views);
    views.state = of(layer.state);
    views.state_out = of(layer.state_out);
    return views;
  }

  CubineryCommitArgs of(const gdn::CommitArgs& args) {
    CubineryCommitArgs views = CUBINERY_COMMIT_ARGS_INIT;
    views.layer = of(args.layer);
    views.layers = of(args.layers);
    views.accepted = of(args.accepted);
    views.cu_seqlens = of(args.cu_seqlens);
    views.state_indices = of(args.state_indices);
    views.state_out_indices = of(args.state_out_indices);
    set_padding(args, &views);
    views.enable_pdl = args.enable_pdl;
    return views;
  }

  CubineryConvArgs of(const gdn::ConvArgs& args) {
    CubineryConvArgs views = CUBINERY_CONV_ARGS_INIT;
    views.x = of(args.x);
    views.weight = of(args.weight);
    views.bias = of(args.bias);
    views.y = of(args.y);
    views.q = of(args.q);
    views.k = of(args.k);
    views.v = of(args.v);
    views.a = of(args.a);
    views.b = of(args.b);
    views.A_log = of(args.A_log);
    views.dt_bias = of(args.dt_bias);
    views.g = of(args.g);
    views.beta = of(args.beta);
    views.cu_seqlens = of(args.cu_seqlens);
    views.has_initial_state = of(args.has_initial_state);
    views.accepted = of(args.accepted);
    set_states(args, &views);
    views.scale = &floats_.emplace_back(args.scale);
    if (args.lower_bound) views.lower_bound = &floats_.emplace_back(*args.lower_bound);
    views.enable_pdl = args.enable_pdl;
    set_checkpoints(args, &views);
    views.max_seqlen = args.max_seqlen;
    return views;
  }

 private:
  template <class Args, class Views>
  void set_gates(const Args& args, Views* views) {
    views->g = of(args.g);
    views->beta = of(args.beta);
    views->A_log = of(args.A_log);
    views->dt_bias = of(args.dt_bias);
  }

  template <class Args, class Views>
  void set_padding(const Args& args, Views* views) {
    if (args.pad_slot_id) views->pad_slot_id = &integers_.emplace_back(*args.pad_slot_id);
    if (args.scratch_slot) views->scratch_slot = &integers_.emplace_back(*args.scratch_slot);
  }

  template <class Args, class Views>
  void set_checkpoints(const Args& args, Views* views) {
    views->checkpoints = of(args.checkpoints);
    views->checkpoint_cu_starts = of(args.checkpoint_cu_starts);
    views->checkpoint_offsets = of(args.checkpoint_offsets);
    views->checkpoint_slots = of(args.checkpoint_slots);
    if (args.checkpoint_every) {
      views->checkpoint_every = &integers_.emplace_back(*args.checkpoint_every);
    }
  }

  template <class Args, class Views>
  void set_states(const Args& args, Views* views) {
    views->state = of(args.state);
    views->state_out = of(args.state_out);
    views->state_indices = of(args.state_indices);
    views->state_out_indices = of(args.state_out_indices);
    set_padding(args, views);
    views->zero_padding = args.zero_padding ? 1 : 0;
  }

  template <class Args, class Views>
  void set_norm(const Args& args, Views* views) {
    views->z = of(args.z);
    views->norm_weight = of(args.norm_weight);
    if (args.norm_eps) views->norm_eps = &floats_.emplace_back(*args.norm_eps);
  }

  template <class Args, class Views>
  void set_shared(const Args& args, Views* views) {
    views->q = of(args.q);
    views->k = of(args.k);
    views->v = of(args.v);
    set_gates(args, views);
    views->o = of(args.o);
    set_states(args, views);
    if (args.scale) views->scale = &floats_.emplace_back(*args.scale);
    views->enable_pdl = args.enable_pdl;
  }

  // Deques: their elements stay where they are.
  std::deque<Tensor> tensors_;
  std::deque<DLTensor> views_;
  std::deque<float> floats_;
  std::deque<std::int64_t> integers_;
};

}  // namespace cubinery::test
