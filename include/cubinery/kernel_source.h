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
#include <string_view>
#include <vector>

#include "cubinery/status.h"

namespace cubinery {

// What compiles a text.  Nothing falls back from one to the other.
enum class Compiler : int {
  kNvrtc,  // in the process: 3 times faster to start with, needs no toolkit
  kNvcc,   // the toolkit's (Options::nvcc_path), with g++: for what NVRTC cannot
};
const char* to_string(Compiler compiler);

struct KernelSource {
  // Of the __global__ function: "scale"; "ns::scale<float, 4>" names an instance of a template.
  // Empty: the only one that the cubin has.
  std::string name{};
  std::string source{};                 // CUDA C++; #include finds common/ and cubinery/
  std::vector<std::string> includes{};  // folders that #include looks in, in this order
  // More for the compiler: "-DBLOCK=256", "--use_fast_math", "--maxrregcount=64".  Those that name
  // files, or change what is made, are refused.
  std::vector<std::string> options{};
  bool allow_spills = true;  // false: a kernel that spills registers is kCompileFailed
  Compiler compiler = Compiler::kNvrtc;
  // NVRTC precompiles the headers before the first token, for this text and for others of the
  // process that begin with the same ones: with CuTe each further kernel compiles in an eighth of
  // the time.  Takes 400 MB of the process's memory until it ends.  Cubins and identity are the
  // same.
  bool share_headers = false;
};

// As JSON, {"name": "scale", "source": "__global__ ...", "options": ["-DBLOCK=256"]}, and back:
// manifests for the command line have it, {"source": {...}}.  Fields at their default are left out.
// JSON is UTF-8: other bytes are replaced.
// kInvalidArgument: not such an object, a field that there is not, or a value that it does not
// take.
std::string to_json(const KernelSource& source);
Result<KernelSource> kernel_source_from_json(std::string_view json);

}  // namespace cubinery
