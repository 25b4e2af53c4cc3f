#include "runtime/registry/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include "codegen/read_json.h"
#include "runtime/gdn/operators.h"

namespace cubinery {
namespace {

Json json_of(const FieldDescription& field) {
  Json object{{"name", field.name}, {"type", field.type}};
  if (field.choices.empty()) {
    object["default"] = *read_json(field.name, field.default_value);
  } else {
    object["default"] = field.default_value;
    object["choices"] = field.choices;
  }
  object["help"] = field.help;
  return object;
}

std::vector<Form> forms_of(std::string_view op) {
  std::vector<Form> forms = model_forms();
  std::erase_if(forms, [op](const Form& form) { return form.op != op; });
  return forms;
}

// As documents call it.  `one_token`: of operators whose sequences have one.
std::string_view axis_text(gdn::Axis axis, bool one_token, bool of_tokens) {
  using gdn::Axis;
  if (axis == Axis::kSequences) return one_token || of_tokens ? "B" : "N";
  if (axis == Axis::kSlots) return one_token ? "B or slots" : "N or slots";
  constexpr std::pair<Axis, std::string_view> kTexts[] = {
      {Axis::kTokens, "T"},        {Axis::kBounds, "N + 1"},
      {Axis::kQHeads, "q_heads"},  {Axis::kKHeads, "k_heads"},
      {Axis::kVHeads, "v_heads"},  {Axis::kHeads, "heads"},
      {Axis::kKeyDim, "key_dim"},  {Axis::kValueDim, "value_dim"},
      {Axis::kStateRows, "rows"},  {Axis::kStateColumns, "columns"},
      {Axis::kColumns, "columns"}, {Axis::kChannels, "channels"},
      {Axis::kWidth, "width"},     {Axis::kCheckpoints, "checkpoints"},
      {Axis::kLayers, "layers"},   {Axis::kWords, "32"},
      {Axis::kOffsets, "K"}};
  for (const auto& [which, text] : kTexts) {
    if (which == axis) return text;
  }
  return "";
}

// Dense, and packed: without its tokens a tensor has no such form.
std::pair<std::string, std::string> shape_texts(const gdn::Axes& axes, bool one_token) {
  const bool of_tokens = axes[1] == gdn::Axis::kTokens;
  std::vector<std::string_view> dense, packed;
  for (const gdn::Axis axis : axes) {
    if (axis == gdn::Axis::kNone || axis == gdn::Axis::kDecayDim) break;
    if (axis == gdn::Axis::kTokens) packed = {"total"};
    if (axis == gdn::Axis::kTokens && one_token) continue;
    const std::string_view text = axis_text(axis, one_token, of_tokens);
    dense.push_back(text);
    if (axis != gdn::Axis::kTokens) packed.push_back(text);
  }
  const bool has_packed = of_tokens && !one_token;
  return {fmt::format("[{}]", fmt::join(dense, ", ")),
          has_packed ? fmt::format("[{}]", fmt::join(packed, ", ")) : ""};
}

std::string_view access_text(gdn::Access access) {
  if (access == gdn::Access::kBoth) return "both";
  return access == gdn::Access::kRead ? "read" : "written";
}

// Not inlined, as they come by the dozen, and a thread's stack may be small.
template <class Problem>
[[gnu::noinline]] void add_tensor(const auto& spec, std::vector<TensorDescription>* to) {
  const gdn::TensorInfo& info = spec.info;
  constexpr bool kOneToken = !requires(const Problem& problem) { problem.varlen; };
  auto [shape, packed] = shape_texts(info.axes, kOneToken);
  TensorDescription tensor{info.name,
                           spec.part,
                           std::move(shape),
                           std::move(packed),
                           info.type_field,
                           access_text(info.access),
                           info.optional == gdn::Optional::kEverywhere,
                           words_of(info.optional),
                           std::count(info.axes.begin(), info.axes.end(), gdn::Axis::kDecayDim) > 0,
                           {},
                           info.doc};
  std::apply([&](const auto&... all) { (tensor.absent_where.push_back(all.words), ...); },
             spec.absences);
  to->push_back(std::move(tensor));
}

// `Of`: arguments, or a size.
template <class Of>
NumberDescription described_number(const auto& number) {
  using T = std::decay_t<decltype(number.in(std::declval<Of&>()))>;
  constexpr bool kOptional = std::is_same_v<T, std::optional<std::int64_t>>;
  const std::string_view type = std::is_same_v<T, bool>                        ? "boolean"
                                : kOptional || std::is_same_v<T, std::int64_t> ? "integer"
                                                                               : "float";
  return {number.name, type, number.absent, kOptional, number.doc};
}

template <class Problem>
[[gnu::noinline]] ArgsDescription described_args() {
  using Args = gdn::ArgsOf<Problem>;
  ArgsDescription args;
  std::apply([&](const auto&... all) { (add_tensor<Problem>(all, &args.tensors), ...); },
             gdn::Tensors<Args>::kList);
  std::apply(
      [&](const auto&... all) { (args.numbers.push_back(described_number<Args>(all)), ...); },
      gdn::Numbers<Args>::kList);
  using Size = gdn::SizeOf<Problem>;
  std::apply([&](const auto&... all) { (args.sizes.push_back(described_number<Size>(all)), ...); },
             gdn::Numbers<Args>::kSizes);
  args.positional = gdn::Tensors<Args>::kPositional;
  if constexpr (requires { gdn::Tensors<Args>::kInstead; }) {
    args.instead = gdn::row_of<Args>(gdn::Tensors<Args>::kInstead).name;
  }
  args.has_workspace = requires(const typename Problem::Operator& op) { op.workspace_bytes({}); };
  return args;
}

// Without what is empty.
Json json_of(std::initializer_list<std::pair<const char*, std::string_view>> texts) {
  Json object = Json::object();
  for (const auto& [name, text] : texts) {
    if (!text.empty()) object[name] = text;
  }
  return object;
}

Json json_of(const TensorDescription& tensor) {
  Json object = json_of({{"name", tensor.name},
                         {"part", tensor.part},
                         {"shape", tensor.shape},
                         {"packed", tensor.packed},
                         {"dtype", tensor.dtype},
                         {"access", tensor.access},
                         {"optional_where", tensor.optional_where},
                         {"doc", tensor.doc}});
  if (tensor.optional) object["optional"] = true;
  if (tensor.per_channel) object["per_channel"] = true;
  if (!tensor.absent_where.empty()) object["absent_where"] = tensor.absent_where;
  return object;
}

Json json_of(const std::vector<NumberDescription>& numbers) {
  Json array = Json::array();
  for (const NumberDescription& number : numbers) {
    array.push_back(json_of({{"name", number.name},
                             {"type", number.type},
                             {"absent", number.absent},
                             {"doc", number.doc}}));
    if (number.optional) array.back()["optional"] = true;
  }
  return array;
}

}  // namespace

const std::vector<OperatorDescription>& operator_descriptions() {
  static const std::vector<OperatorDescription> kDescriptions = [] {
    std::vector<OperatorDescription> operators;
    for (const std::string& op : operator_names()) {
      const auto describe = [](const auto& problem) -> OperatorDescription {
        using P = std::decay_t<decltype(problem)>;
        return {Fields<P>::kName, Fields<P>::kHelp, describe_fields<P>(),
                forms_of(Fields<P>::kName), described_args<P>()};
      };
      operators.push_back(std::visit(describe, default_problem(op)));
    }
    return operators;
  }();
  return kDescriptions;
}

std::string operators_json() {
  Json document = Json::array();
  for (const OperatorDescription& op : operator_descriptions()) {
    Json fields = Json::array();
    for (const FieldDescription& field : op.fields) fields.push_back(json_of(field));
    Json forms = Json::array();
    for (const Form& form : op.forms) forms.push_back({{"name", form.name}, {"help", form.help}});
    Json tensors = Json::array();
    for (const TensorDescription& tensor : op.args.tensors) tensors.push_back(json_of(tensor));
    document.push_back({{"op", op.name},
                        {"help", op.help},
                        {"fields", std::move(fields)},
                        {"forms", std::move(forms)},
                        {"tensors", std::move(tensors)},
                        {"numbers", json_of(op.args.numbers)},
                        {"sizes", json_of(op.args.sizes)},
                        {"positional", op.args.positional},
                        {"instead", op.args.instead},
                        {"workspace", op.args.has_workspace}});
  }
  return document.dump();
}

}  // namespace cubinery
