// Launches of the operators on their operands, and the Workload of a tunable.
#pragma once

#include <functional>
#include <map>
#include <type_traits>
#include <utility>

#include "cubinery/tuning.h"
#include "harness/operands.h"
#include "harness/operators.h"

namespace cubinery {

// `operands` were made for the operator's problem, with workspace enough.
template <class Operator, class Problem>
Status launch(const Operator& prepared, Stream stream, const Operands<Problem>& operands, int set) {
  using Harness = HarnessOf<std::decay_t<decltype(prepared.problem())>>;
  return Harness::launch(prepared, stream, operands.args(set), operands.workspace(set));
}

template <class Operator, class Operands = GdnOperands>
class GdnWorkload final : public Workload {
 public:
  // Makes the operator of a configuration, for the problem of `operands`.
  using Create = std::function<Result<Operator>(std::size_t configuration)>;

  GdnWorkload(Operands operands, Create create)
      : operands_(std::move(operands)), create_(std::move(create)) {}

  int sets() const override { return operands_.sets(); }
  std::int64_t bytes() const override { return operands_.bytes(); }
  Status launch(std::size_t configuration, Stream stream, int set) override {
    auto found = operators_.find(configuration);
    if (found == operators_.end()) {
      Result<Operator> made = create_(configuration);
      if (!made) return std::move(made).error();
      found = operators_.emplace(configuration, std::move(*made)).first;
    }
    return cubinery::launch(found->second, stream, operands_, set);
  }

 private:
  Operands operands_;
  Create create_;
  std::map<std::size_t, Operator> operators_;  // by configuration
};

}  // namespace cubinery
