// Problems, and requests for reports, as the C library takes them.
#include <cstring>

#include "cubinery/c_api.h"
#include "runtime/registry/operators.h"
#include "tests/fuzz/target.h"

using namespace cubinery;

CUBINERY_FUZZ_TARGET(problem) {
  const std::string text(input);
  for (const std::string& op : operator_names()) {
    char* full = nullptr;
    const int code = cubinery_check_problem(op.c_str(), text.c_str(), &full);
    fuzz::require(code == CUBINERY_OK || code == CUBINERY_INVALID_ARGUMENT);
    if (code != CUBINERY_OK) {
      fuzz::require(std::strlen(cubinery_last_error()) > 0);
      continue;
    }
    char* again = nullptr;
    fuzz::require(cubinery_check_problem(op.c_str(), full, &again) == CUBINERY_OK);
    fuzz::require(std::strcmp(full, again) == 0);
    cubinery_free_text(full);
    cubinery_free_text(again);
  }
  char* report = nullptr;
  const int code = cubinery_tuning_report("/nowhere/at/all", text.c_str(), &report);
  fuzz::require(code == CUBINERY_INVALID_ARGUMENT && report == nullptr);
}
