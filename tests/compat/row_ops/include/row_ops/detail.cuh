#pragma once

namespace row_ops {

constexpr int kBias = 5;

}  // namespace row_ops
