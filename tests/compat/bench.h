// A device that is not there, for what is written for DeepJIT.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/compat/deep_jit.hpp"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/data/fake_driver.h"

namespace cubinery::test {

using DeepJit = deep_jit::Runtime<deep_jit::CUDA>;

// A variable of the environment, for as long as it lives.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_.c_str()); }

 private:
  std::string name_;
};

// What an exception of `call` says; empty: there was none.
template <class Call>
std::string thrown(const Call& call) {
  try {
    call();
  } catch (const deep_jit::exception::Exception& exception) {
    return exception.what();
  }
  return {};
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

struct JitBench {
  TempDir dir;
  Variable driver{"CUBINERY_DRIVER", CUBINERY_FAKE_DRIVER};
  Variable cache{"TEST_JIT_CACHE_DIR", dir.path() + "/cache"};
  FakeDriver fake{CUBINERY_FAKE_DRIVER};

  deep_jit::Config config(const std::string& signature = "",
                          std::vector<std::filesystem::path> include_dirs = {}) const {
    return deep_jit::Config(dir.path(), "TEST", signature, std::move(include_dirs), {"own/"});
  }
  std::shared_ptr<DeepJit> runtime(const std::string& signature = "",
                                   std::vector<std::filesystem::path> include_dirs = {}) const {
    return std::make_shared<DeepJit>(config(signature, std::move(include_dirs)));
  }
  // A file of a folder for includes: its folder.
  std::string write(const std::string& folder, const std::string& name,
                    const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(dir.path()) / folder / name;
    std::filesystem::create_directories(path.parent_path());
    write_bytes(path.string(), text);
    return dir.path() + "/" + folder;
  }
};

inline CacheStats stats_of(DeepJit& runtime) {
  return runtime.context(*runtime.default_compiler_options.arch).stats();
}

inline const char* const kScaleKernel = R"(
extern "C" __global__ void scale(float* output, const float* input, int count) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) output[index] = input[index] * 2.0f;
}
)";

}  // namespace cubinery::test
