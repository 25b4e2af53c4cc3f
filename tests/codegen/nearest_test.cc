#include "codegen/nearest.h"

#include "tests/catch.h"

namespace cubinery {
namespace {

TEST_CASE("TheNearestNameIsSuggested", "[cpu]") {
  const std::vector<std::string> names = {"tokens", "sequences", "max_seqlen",
                                          "tp",     "q_heads",   "k_heads"};
  CHECK(did_you_mean("token", names) == "; did you mean tokens?");
  CHECK(did_you_mean("toknes", names) == "; did you mean tokens?");
  CHECK(did_you_mean("seq", names) == "; did you mean sequences?");
  CHECK(did_you_mean("MAX-SEQLEN", names) == "; did you mean max_seqlen?");
  CHECK(did_you_mean("kheads", names) == "; did you mean k_heads?");
  CHECK(did_you_mean("tq", names) == "; did you mean tp?");
  CHECK(did_you_mean("heads", names) == "; did you mean q_heads or k_heads?");
  CHECK(did_you_mean("batch", names).empty());
  CHECK(did_you_mean("", names).empty());
  CHECK(did_you_mean("x", names).empty());
  CHECK(did_you_mean(std::string(100000, 't'), names).empty());
  CHECK(did_you_mean("tokens", {}).empty());
}

}  // namespace
}  // namespace cubinery
