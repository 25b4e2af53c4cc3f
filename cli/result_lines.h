// The lines of a file of tuning results, one by one, and the problems that they are of.
#pragma once

#include <string>
#include <vector>

#include "cubinery/status.h"
#include "results/records.h"
#include "runtime/registry/operators.h"

namespace cubinery {

struct ResultLine {
  int number = 0;  // from 1
  Result<TuningResult> result;
};

// Lines of other records are left out.  kIo: the file cannot be read.
Result<std::vector<ResultLine>> result_lines(const std::string& file);

// The problem that a result was measured for, with the head counts of its shape.  kInvalidArgument:
// it is of no operator of the library, or of a field or value that the operator does not have.
Result<Problem> problem_of(const Setting& setting);

}  // namespace cubinery
