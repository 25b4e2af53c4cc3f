#include "codegen/read_json.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(json) {
  const Result<Json> read = read_json("input", input);
  if (!read) return fuzz::require(read.error().message().size() < 400);
  // The library that reads without limits agrees.
  const Json whole = Json::parse(input, nullptr, /*allow_exceptions=*/false);
  fuzz::require(whole == *read);
  fuzz::require(json_excerpt(*read).size() < 200);
  // What is JSON is the same as Python's.
  const Result<Json> python = read_python_json("input", input);
  fuzz::require(python && *python == *read);
}
