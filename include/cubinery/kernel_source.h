// A kernel given as text.
//
//   Kernel kernel = context.get({.name = "scale", .source = R"(
//       __global__ void scale(float* y, float by, int n) {
//         const int i = blockIdx.x * blockDim.x + threadIdx.x;
//         if (i < n) y[i] *= by;
//       })"}).value();
//   kernel.launch(stream, {.grid = {rows}, .block = {256}}, y, 2.0f, cols).value();
//
// It is compiled, cached, found offline and shipped in packs as kernels with keys are.  What it is
// cached under covers the name, the text, every file that it includes and the options, by content.
#pragma once

#include <string>
#include <vector>

namespace cubinery {

struct KernelSource {
  // Of the __global__ function: "scale"; "ns::scale<float, 4>" names an instance of a template.
  std::string name{};
  std::string source{};                 // CUDA C++; #include finds common/ and cubinery/
  std::vector<std::string> includes{};  // folders that #include looks in, in this order
  // More for the compiler: "-DBLOCK=256", "--use_fast_math", "--maxrregcount=64".  Those that name
  // files, or change what is made, are refused.
  std::vector<std::string> options{};
  bool allow_spills = true;  // false: a kernel that spills registers is kCompileFailed
};

}  // namespace cubinery
