#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cubinery/compat/deep_jit/utils/env.hpp"
#include "cubinery/kernel_source.h"

namespace deep_jit {

struct Config {
  std::filesystem::path python_library_root;
  std::string env_prefix;
  std::string extra_signature;  // part of each kernel's identity
  std::vector<std::filesystem::path> include_dirs;
  std::vector<std::string> include_prefixes;  // without effect: every header is tracked by content
  // cubinery's own: what compiles, unless the variable PREFIX_JIT_COMPILER says.
  cubinery::Compiler compiler = cubinery::Compiler::kNvrtc;

  explicit Config(const std::filesystem::path& root, std::string prefix, std::string signature = {},
                  std::vector<std::filesystem::path> folders = {},
                  std::vector<std::string> prefixes = {})
      : python_library_root(root.lexically_normal()),
        env_prefix(Env(std::move(prefix)).prefix),
        extra_signature(std::move(signature)),
        include_dirs(std::move(folders)),
        include_prefixes(std::move(prefixes)) {
    DJ_HOST_ASSERT(!root.empty(), "Python library root must not be empty");
    DJ_HOST_ASSERT(root.is_absolute(), "Python library root must be absolute: {}", root.string());
    for (std::filesystem::path& folder : include_dirs) {
      DJ_HOST_ASSERT(!folder.empty(), "JIT include directory must not be empty");
      DJ_HOST_ASSERT(folder.is_absolute(), "JIT include directory must be absolute: {}",
                     folder.string());
      folder = folder.lexically_normal();
    }
  }

  std::filesystem::path get_python_path(const std::string& rel_path) const {
    return python_library_root / std::filesystem::path(rel_path).lexically_normal();
  }
};

}  // namespace deep_jit
