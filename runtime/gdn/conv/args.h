// From the arguments of one convolution to the parameters of its kernel.
#pragma once

#include <cstdint>

#include "cubinery/gdn_conv.h"
#include "gdn_conv/key.h"
#include "runtime/gdn/shared/bind_rows.h"
#include "runtime/gdn/shared/bind_states.h"

namespace cubinery::gdn {

struct ConvExtent {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  // dense: of each sequence; packed: of all
  std::int64_t channels = 0;

  ConvSize size(bool varlen) const {
    return {.sequences = sequences,
            .tokens = varlen ? tokens : sequences * tokens,
            .channels = channels};
  }
};

// By the shapes of x and cu_seqlens, before anything else is checked.
Status conv_extent(const ConvProblem& problem, const ConvArgs& args, ConvExtent* extent);

// Checks every tensor of such a launch and fills all parameters but those of the grid.
Status bind_conv(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                 GdnConvParams* params);

// The part of it that other kernels take, too: its tensors, and what messages call them.
struct ConvTensors {
  const Tensor &x, &weight, &bias, &state, &state_out;
};
struct ConvNames {
  TensorName x, weight, bias, state, state_out;
};
// `steps`: of the states.
Status bind_conv_inputs(const ConvNames& names, const ConvProblem& problem,
                        const ConvTensors& given, const ConvExtent& extent, const StepForm& steps,
                        ConvInputs* inputs, StateSteps* strides);

// Whether rows and states lie so that the kernel for vectors reads and writes them.
bool lies_in_vectors(const GdnConvKey& key, const GdnConvParams& params);
// The parts of that: in vectors of so many channels.  `step`: the stride from one step to the next.
bool rows_in_vectors(int lane_channels, DType dtype, const ConvRows& rows);
bool states_in_vectors(int lane_channels, const ConvStates& states, const void* data,
                       const ConvStateStrides& stride, long long step, int columns);

}  // namespace cubinery::gdn
