// What a problem's field table says of its fields.
#include "codegen/describe.h"

#include <string_view>
#include <vector>

#include "tests/catch.h"
#include "tests/codegen/toy_key.h"

namespace toy {

constexpr std::array kFloats{cubinery::DType::kF32, cubinery::DType::kBF16};

struct ToyProblem {
  int rows = 4;
  cubinery::DType dtype = cubinery::DType::kBF16;
  Colour colour = Colour::kDeepBlue;
  bool fast = true;
};

}  // namespace toy

template <>
struct cubinery::Fields<toy::ToyProblem> {
  using P = toy::ToyProblem;
  static constexpr const char* kName = "toy";
  static constexpr auto kList = std::tuple{
      fixed<&P::rows>("how many rows"),
      fixed<&P::dtype>("what they are of", toy::kFloats),
      fixed<&P::colour>("how they look"),
      fixed<&P::fast>("whether it is urgent"),
  };
};

namespace cubinery {
namespace {

using Texts = std::vector<std::string_view>;

TEST_CASE("FieldsAreDescribedInOrder", "[cpu]") {
  const std::vector<FieldDescription> fields = describe_fields<toy::ToyProblem>();
  Texts names, types, defaults, accepted, help;
  for (const FieldDescription& field : fields) {
    names.push_back(field.name);
    types.push_back(field.type);
    defaults.push_back(field.default_value);
    accepted.push_back(field.accepted);
    help.push_back(field.help);
  }
  CHECK(names == Texts{"rows", "dtype", "colour", "fast"});
  CHECK(types == Texts{"integer", "string", "string", "boolean"});
  CHECK(defaults == Texts{"4", "bf16", "deep_blue", "true"});
  CHECK(accepted == Texts{"an integer", "f32, bf16", "red, deep_blue", "true, false"});
  CHECK(help ==
        Texts{"how many rows", "what they are of", "how they look", "whether it is urgent"});
}

TEST_CASE("OnlyStringsHaveChoices", "[cpu]") {
  const std::vector<FieldDescription> fields = describe_fields<toy::ToyProblem>();
  CHECK(fields[0].choices.empty());
  CHECK(fields[1].choices == Texts{"f32", "bf16"});
  CHECK(fields[2].choices == Texts{"red", "deep_blue"});
  CHECK(fields[3].choices.empty());
}

}  // namespace
}  // namespace cubinery
