// Finds the files of a template: in the caller's folders first, then inside the library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/trust.h"
#include "codegen/bundle.h"
#include "cubinery/status.h"

namespace cubinery {

struct TemplateSource {
  std::string path;  // as compilers show it: "gdn_decode/gdn_decode.cu"
  std::string
      origin;  // where it came from: a file's path, or "<embedded>/gdn_decode/gdn_decode.cu"
  std::string text;
  TemplateFiles files;  // everything that the template may include, itself among them
  std::string template_digest;
  std::string headers_digest;
};

// kInvalidKey: no folder has <kernel>/<kernel>.cu, or `kernel` is not a C identifier; names the
// places. kIo: a file that is there cannot be read; or others than those of `trust` could have
// written it or its folder (cache/trust.h).  kCompileFailed: a file of the folders may read a file
// that is not in them (outside_directive()).
Result<TemplateSource> find_template(std::string_view kernel,
                                     const std::vector<std::string>& template_dirs,
                                     const Trust& trust = {});

// code_digest() of the template, its errors as above.  Without folders nothing is read for a kernel
// of the library.
Result<std::string> find_code_digest(std::string_view kernel,
                                     const std::vector<std::string>& template_dirs,
                                     const Trust& trust = {});

}  // namespace cubinery
