// From the arguments of one convolution to the parameters of its kernel.
#pragma once

#include <cstdint>

#include "cubinery/gdn_conv.h"
#include "gdn_conv/key.h"
#include "runtime/gdn/shared/bind_states.h"
#include "runtime/gdn/shared/binder.h"

namespace cubinery::gdn {

struct ConvExtent : LaunchExtent {
  std::int64_t channels = 0;

  ConvSize size() const {
    return {.sequences = sequences, .tokens = all_tokens(), .channels = channels};
  }
};

// By the shapes of x and cu_seqlens, before anything else is checked.
Status conv_extent(const ConvProblem& problem, const ConvArgs& args, ConvExtent* extent);

// Checks every tensor of such a launch and fills all parameters but those of the grid.
Status bind_conv(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                 GdnConvParams* params);

// The part of it that other kernels take, too.
struct ConvTensors {
  NamedTensor x, weight, bias, state, state_out;
};
// `steps`: of the states.
Status bind_conv_inputs(const ConvProblem& problem, const ConvTensors& given,
                        const ConvExtent& extent, const StepForm& steps, ConvInputs* inputs,
                        StateSteps* strides);

// Rows of `row` elements, of `heads` where the form has them, that lie as they like.  Nobody steps
// along a dimension of one element: it has stride 0, and elements have stride 1.
Status check_loose_rows(const NamedTensor& tensor, DType dtype, const TokenForm& form,
                        const Dim& heads, const Dim& row, RowStrides* strides);

// What a tensor of states is bound to.
struct BoundStates {
  ConvStateStrides* stride;
  long long* step;  // from one step to the next
  long long* slots;
  int* columns;
};

// State, state_out or checkpoints.  `steps`: as in StepForm.
Status check_conv_states(const TensorName& name, const ConvProblem& problem, const Tensor& x,
                         const Dim& outer, std::int64_t steps, std::int64_t channels,
                         const BoundStates& bound);

// Whether rows and states lie so that the kernel for vectors reads and writes them.
bool lies_in_vectors(const GdnConvKey& key, const GdnConvParams& params);
// The parts of that: in vectors of so many channels.  `step`: the stride from one step to the next.
bool rows_in_vectors(int lane_channels, DType dtype, const ConvRows& rows);
bool states_in_vectors(int lane_channels, const ConvStates& states, const void* data,
                       const ConvStateStrides& stride, long long step, int columns);

}  // namespace cubinery::gdn
