#include "operator.h"

namespace cubinery_python {
namespace {

using cubinery::capi::conv_tensors;

class Conv final
    : public HandleOperator<CubineryConv, cubinery_conv_create, cubinery_conv_destroy> {
 public:
  using HandleOperator::HandleOperator;

  // stream, conv_tensors()..., scratch_slot, scale, enable_pdl, max_seqlen
  PyObject* launch(PyObject* const* given, Py_ssize_t count) const override {
    CubineryConvArgs args = CUBINERY_CONV_ARGS_INIT;
    const auto tensors = conv_tensors(args);
    static_assert(tensors.size() < ArrayViews::kCapacity);
    if (!right_count(count, 1 + tensors.size() + 4)) return nullptr;
    ArrayViews views(device());
    float scale = 0;
    if (!views.choose_stream(given[0], "x", given[1])) return nullptr;
    ++given;
    if (!read_tensors(tensors, given, &views)) return nullptr;
    if (!read_numbers(given, &scale, &args)) return nullptr;
    if (!read_integers(given, 1, {{"max_seqlen", &args.max_seqlen}})) return nullptr;
    return done(without_gil([&] { return cubinery_conv_launch(handle(), views.stream(), &args); }));
  }

  PyObject* choice(PyObject* const* given, Py_ssize_t count) const override {
    return choice_of(cubinery_conv_choice, handle(), {"sequences", "tokens", "channels"}, given,
                     count);
  }
};

const OperatorClass kConv("gdn_conv", Conv::create<Conv>);

}  // namespace
}  // namespace cubinery_python
