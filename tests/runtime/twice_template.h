// A template that compiles fast, in a folder of the test's own.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/context.h"
#include "tests/cache/temp_dir.h"
#include "tests/catch.h"
#include "tests/nvrtc_path.h"

namespace cubinery::test {

inline KernelSpec twice_spec(int threads = 64) {
  const std::string number = std::to_string(threads);
  return {.kernel = "twice",
          .canonical = "twice;threads=" + number,
          .initializer = "{.threads=" + number + "}",
          .threads = static_cast<unsigned>(threads),
          .param_bytes = 16};
}

inline constexpr std::string_view kTwiceKey = R"(#pragma once
struct TwiceKey {
  int threads = 32;
};
struct TwiceParams {
  float* x;
  long long n;
};
)";

inline constexpr std::string_view kTwiceKernel = R"(#include "twice/key.h"
#ifdef CUBINERY_KEY
constexpr TwiceKey kKey = CUBINERY_KEY;
#else
constexpr TwiceKey kKey{};
#endif
static_assert(kKey.threads % 32 == 0, "twice: whole warps only");
extern "C" __global__ void __launch_bounds__(kKey.threads)
    twice(const __grid_constant__ TwiceParams p) {
  const long long i = blockIdx.x * static_cast<long long>(kKey.threads) + threadIdx.x;
  if (i < p.n) p.x[i] *= 2.0f;
}
)";

inline Context context_of(Options options) {
  Result<Context> context = Context::create(std::move(options));
  REQUIRE(context);
  return std::move(*context);
}

// What a library has said.
class Log {
 public:
  std::function<void(LogLevel, std::string_view)> callback() {
    return [this](LogLevel, std::string_view text) {
      const std::lock_guard<std::mutex> guard(mutex_);
      text_.append(text).append("\n");
    };
  }
  bool has(std::string_view part) const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return text_.find(part) != text_.npos;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// A folder of templates, an empty cache and what contexts on them say.
class Workshop {
 public:
  Workshop() {
    write("twice/key.h", kTwiceKey);
    write("twice/twice.cu", kTwiceKernel);
  }

  std::string templates() const { return dir_.path() + "/templates"; }
  std::string cache() const { return dir_.path() + "/cache"; }
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  const Log& log() const { return log_; }

  void write(const std::string& name, std::string_view text) const {
    const std::filesystem::path file = templates() + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    write_bytes(file.string(), std::string(text));
  }

  // No device, sm_90a.
  Options options() {
    Options options;
    options.device = kNoDevice;
    options.arch = "sm_90a";
    options.nvrtc_path = nvrtc_path();
    options.cache_dir = cache();
    options.template_dirs = {templates()};
    options.log = log_.callback();
    return options;
  }

 private:
  TempDir dir_;
  Log log_;
};

}  // namespace cubinery::test
