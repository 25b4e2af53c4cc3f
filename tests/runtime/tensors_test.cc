// The tables of the operators' tensors.
#include <set>
#include <string>

#include "runtime/gdn/operators.h"
#include "tests/catch.h"

namespace cubinery::gdn {
namespace {

// A table names the field that has a tensor's dtype, and reads that field.
template <class Args>
void check_types() {
  using Problem = typename Tensors<Args>::Problem;
  std::set<std::string_view> names;
  for (const TensorRow<Args>& row : kTensorRows<Args>) {
    INFO(row.name << " of " << Fields<Problem>::kName);
    CHECK(names.insert(row.name).second);
    CHECK(&row == &row_of<Args>(row.id));
    if (row.type_field == "f32" || row.type_field == "bool" || row.type_field == "i64" ||
        row.type_field == "i32") {
      continue;
    }
    std::set<DType> types;
    for (const char* const type : {"f16", "bf16", "i32", "i64"}) {
      const auto problem =
          Problem::from_json("{\"" + std::string(row.type_field) + "\":\"" + type + "\"}");
      if (problem) types.insert(row.type(*problem));
    }
    CHECK(types.size() >= 2);
  }
}

TEST_CASE("Tensors.TypesAreThoseOfTheirFields", "[cpu]") {
  check_types<DecodeArgs>();
  check_types<PrefillArgs>();
  check_types<VerifyArgs>();
  check_types<CommitLayer>();
  check_types<CommitArgs>();
  check_types<ConvArgs>();
}

// Each row is another member.
template <class Args>
void check_members() {
  Args args{};
  std::set<const Tensor*> members;
  for (const TensorRow<Args>& row : kTensorRows<Args>) members.insert(&row.in(args));
  CHECK(members.size() == kTensorRows<Args>.size());
}

TEST_CASE("Tensors.EachIsAMemberOfItsOwn", "[cpu]") {
  check_members<DecodeArgs>();
  check_members<PrefillArgs>();
  check_members<VerifyArgs>();
  check_members<CommitLayer>();
  check_members<CommitArgs>();
  check_members<ConvArgs>();
}

TEST_CASE("Tensors.TheFirstReasonIsWhyOneIsAbsent", "[cpu]") {
  const auto why = [](const PrefillProblem& problem, TensorId id) {
    return row_of<PrefillArgs>(id).why_absent(problem);
  };
  CHECK(why({}, TensorId::kQ).empty());
  CHECK(why({}, TensorId::kCuSeqlens) == "varlen is false");
  CHECK(why({}, TensorId::kCheckpointCuStarts) == "checkpoints is none");
  CHECK(why({.checkpoints = Checkpoints::kAfter}, TensorId::kCheckpointCuStarts) ==
        "varlen is false");
  CHECK(why({.varlen = true, .checkpoints = Checkpoints::kAfter}, TensorId::kCheckpointCuStarts)
            .empty());
  CHECK(why({.varlen = true, .checkpoints = Checkpoints::kAt}, TensorId::kCheckpointCuStarts) ==
        "checkpoints is at");
  CHECK(why({.checkpoints = Checkpoints::kAfter}, TensorId::kCheckpointOffsets) ==
        "checkpoints is not at");
  CHECK(why({.checkpoints = Checkpoints::kAt}, TensorId::kCheckpointSlots).empty());
}

}  // namespace
}  // namespace cubinery::gdn
